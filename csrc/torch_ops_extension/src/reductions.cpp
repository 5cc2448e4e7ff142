// SPDX-License-Identifier: Apache-2.0
//
// npu_reduce_sum, npu_reduce_mean, npu_softmax and npu_log_softmax: over one extent of x.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <c10/core/WrapDimMinimal.h>
#include <torch/library.h>

#include <limits>

#include "arguments.h"
#include "library.h"

namespace batch_invariant_ops {
namespace {

// A scalar is reduced as a vector of one element, as torch.sum does.
at::Tensor at_least_1d(const at::Tensor &x) { return x.dim() == 0 ? x.unsqueeze(0) : x; }

at::Tensor reduce(const char *op, decltype(&bi_reduce_sum) Library::*function, double of_nothing,
                  const at::Tensor &x, int64_t dim, bool keepdim) {
  check_arguments(op, {{"x", x}});
  dim = c10::maybe_wrap_dim(dim, x.dim());
  c10::SymDimVector shape(x.sym_sizes().begin(), x.sym_sizes().end());
  if (!shape.empty()) {
    if (keepdim) {
      shape[dim] = 1;
    } else {
      shape.erase(shape.begin() + dim);
    }
  }
  at::Tensor out = at::empty_symint(shape, x.options());
  if (out.is_meta() || out.numel() == 0) return out;
  if (x.numel() == 0) return out.fill_(of_nothing);

  const at::Tensor from = at_least_1d(x);
  const at::Tensor kept = keepdim && x.dim() > 0 ? out : out.unsqueeze(dim);
  const Library &lib = library(op);
  const bi_tensor x_view = view_of(from), out_view = output_view(kept);
  const auto dims = static_cast<int32_t>(dim);
  check_status(lib, op, (lib.*function)(&x_view, &dims, 1, &out_view, at::get_num_threads()));
  return out;
}

at::Tensor reduce_sum(const at::Tensor &x, int64_t dim, bool keepdim) {
  return reduce("npu_reduce_sum_batch_invariant", &Library::bi_reduce_sum, 0.0, x, dim, keepdim);
}

at::Tensor reduce_mean(const at::Tensor &x, int64_t dim, bool keepdim) {
  return reduce("npu_reduce_mean_batch_invariant", &Library::bi_reduce_mean,
                std::numeric_limits<double>::quiet_NaN(), x, dim, keepdim);
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
  m.impl("npu_reduce_mean_batch_invariant", &reduce_mean);
  m.impl("npu_softmax_batch_invariant", &softmax);
  m.impl("npu_log_softmax_batch_invariant", &log_softmax);
}

}  // namespace

TORCH_LIBRARY_IMPL(batch_invariant_ops, CPU, m) { register_kernels(m); }
TORCH_LIBRARY_IMPL(batch_invariant_ops, Meta, m) { register_kernels(m); }

}  // namespace batch_invariant_ops
