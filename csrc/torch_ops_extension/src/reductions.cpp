// SPDX-License-Identifier: Apache-2.0
//
// npu_reduce_sum and npu_reduce_mean, over any extents of x; npu_softmax and npu_log_softmax, over
// one.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/WrapDimMinimal.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "arguments.h"
#include "library.h"

namespace batch_invariant_ops {
namespace {

// A scalar is reduced as a vector of one element, as torch.sum does.
at::Tensor at_least_1d(const at::Tensor &x) { return x.dim() == 0 ? x.unsqueeze(0) : x; }

using Dims = c10::SmallVector<int32_t, 8>;

// The extents of x to reduce, ascending: all of them where none is named, as in torch.
Dims dims_of(const char *op, const at::Tensor &x, at::OptionalIntArrayRef named) {
  const int64_t count = std::max<int64_t>(x.dim(), 1);
  c10::SmallVector<bool, 8> reduced(static_cast<size_t>(count), !named || named->empty());
  if (named) {
    for (const int64_t dim : *named) {
      bool &chosen = reduced[static_cast<size_t>(c10::maybe_wrap_dim(dim, x.dim()))];
      TORCH_CHECK(!chosen, op, ": dim ", dim, " appears more than once in the list of dims");
      chosen = true;
    }
  }
  Dims dims;
  for (int64_t d = 0; d < count; ++d) {
    if (reduced[static_cast<size_t>(d)]) dims.push_back(static_cast<int32_t>(d));
  }
  return dims;
}

// The type of a sum of x, as in torch: what is asked for, or int64 for integers, or x's own.
at::ScalarType type_of_sum(const char *op, const at::Tensor &x,
                           std::optional<at::ScalarType> dtype) {
  const bool integers = at::isIntegralType(x.scalar_type(), /*includeBool=*/true);
  if (!integers) check_arguments(op, {{"x", x}});
  if (!dtype) return integers ? at::kLong : x.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(is_float(*dtype) || at::isIntegralType(*dtype, false), op, ": dtype ",
                              *dtype, " is not supported: expected an integer type, ",
                              "Float, BFloat16 or Half");
  return *dtype;
}

// Sums in fp32 or int64 are computed from x as it is; any other x is converted first, as torch
// converts it: to the type of the result.
at::Tensor terms_of(const at::Tensor &x, at::ScalarType result) {
  if (is_float(result)) {
    return is_float(x.scalar_type()) && result == at::kFloat ? x : x.to(result);
  }
  const at::Tensor integers = is_float(x.scalar_type()) ? x.to(result) : x;
  const bool known = integers.scalar_type() == at::kInt || integers.scalar_type() == at::kLong;
  return known ? integers : integers.to(at::kLong);
}

at::Tensor reduce(const char *op, decltype(&bi_reduce_sum) Library::*function, double of_nothing,
                  const at::Tensor &x, at::OptionalIntArrayRef named, bool keepdim,
                  at::ScalarType result) {
  const Dims dims = dims_of(op, x, named);
  c10::SymDimVector shape, kept_shape;
  for (int64_t d = 0, next = 0; d < x.dim(); ++d) {
    const bool reduced = next < static_cast<int64_t>(dims.size()) && dims[next] == d;
    next += reduced;
    kept_shape.push_back(reduced ? c10::SymInt(1) : x.sym_size(d));
    if (keepdim || !reduced) shape.push_back(kept_shape.back());
  }
  const at::Tensor out = at::empty_symint(shape, x.options().dtype(result));
  if (out.is_meta() || out.numel() == 0) return out;
  if (x.numel() == 0) return out.fill_(of_nothing);

  const at::Tensor from = at_least_1d(terms_of(x, result));
  // Integers are summed modulo 2^64, of which a narrower type keeps the low bits.
  const bool narrow = !is_float(result) && result != at::kLong;
  const at::Tensor wide = narrow ? at::empty(out.sizes(), out.options().dtype(at::kLong)) : out;
  const at::Tensor kept = at_least_1d(wide.view_symint(kept_shape));
  const Library &lib = library(op);
  const bi_tensor x_view = view_of(from), out_view = output_view(kept);
  check_status(lib, op,
               (lib.*function)(&x_view, dims.data(), static_cast<int32_t>(dims.size()), &out_view,
                               at::get_num_threads()));
  return narrow ? wide.to(result) : out;
}

at::Tensor reduce_sum_dims(const at::Tensor &x, at::OptionalIntArrayRef dim, bool keepdim,
                           std::optional<at::ScalarType> dtype) {
  constexpr const char *op = "npu_reduce_sum_batch_invariant";
  return reduce(op, &Library::bi_reduce_sum, 0.0, x, dim, keepdim, type_of_sum(op, x, dtype));
}

at::Tensor reduce_sum(const at::Tensor &x, int64_t dim, bool keepdim) {
  return reduce_sum_dims(x, dim, keepdim, std::nullopt);
}

at::Tensor reduce_mean_dims(const at::Tensor &x, at::OptionalIntArrayRef dim, bool keepdim,
                            std::optional<at::ScalarType> dtype) {
  constexpr const char *op = "npu_reduce_mean_batch_invariant";
  const at::ScalarType result = type_of_sum(op, x, dtype);
  TORCH_CHECK(is_float(result), op, ": a mean is of a floating-point type, but ",
              dtype ? "dtype" : "x", " is ", dtype ? *dtype : x.scalar_type(),
              dtype ? "" : "; give a dtype");
  return reduce(op, &Library::bi_reduce_mean, std::numeric_limits<double>::quiet_NaN(), x, dim,
                keepdim, result);
}

at::Tensor reduce_mean(const at::Tensor &x, int64_t dim, bool keepdim) {
  return reduce_mean_dims(x, dim, keepdim, std::nullopt);
}

at::Tensor normalise(const char *op, decltype(&bi_softmax) Library::*function, const at::Tensor &x,
                     int64_t dim) {
  check_arguments(op, {{"x", x}});
  dim = c10::maybe_wrap_dim(dim, x.dim());
  const at::Tensor out = at::empty_symint(x.sym_sizes(), x.options());
  if (out.is_meta() || out.numel() == 0) return out;

  const at::Tensor from = at_least_1d(x), to = at_least_1d(out);
  const Library &lib = library(op);
  const bi_tensor x_view = view_of(from), out_view = output_view(to);
  check_status(
      lib, op,
      (lib.*function)(&x_view, static_cast<int32_t>(dim), &out_view, at::get_num_threads()));
  return out;
}

at::Tensor softmax(const at::Tensor &x, int64_t dim) {
  return normalise("npu_softmax_batch_invariant", &Library::bi_softmax, x, dim);
}

at::Tensor log_softmax(const at::Tensor &x, int64_t dim) {
  return normalise("npu_log_softmax_batch_invariant", &Library::bi_log_softmax, x, dim);
}

void register_kernels(torch::Library &m) {
  m.impl("npu_reduce_sum_batch_invariant", &reduce_sum);
  m.impl("npu_reduce_sum_batch_invariant.dims", &reduce_sum_dims);
  m.impl("npu_reduce_mean_batch_invariant", &reduce_mean);
  m.impl("npu_reduce_mean_batch_invariant.dims", &reduce_mean_dims);
  m.impl("npu_softmax_batch_invariant", &softmax);
  m.impl("npu_log_softmax_batch_invariant", &log_softmax);
}

}  // namespace

TORCH_LIBRARY_IMPL(batch_invariant_ops, CPU, m) { register_kernels(m); }
TORCH_LIBRARY_IMPL(batch_invariant_ops, Meta, m) { register_kernels(m); }

}  // namespace batch_invariant_ops
