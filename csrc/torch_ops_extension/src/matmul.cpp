// SPDX-License-Identifier: Apache-2.0
//
// npu_mm, npu_matmul and npu_linear: one function serves the CPU and the Meta key, so that shapes
// and errors are the same on both.
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <optional>

#include "arguments.h"
#include "library.h"
#include "products.h"

namespace batch_invariant_ops {
namespace {

// a [.., M, K], b [.., K, N] and out [.., M, N], not empty; bias [N] or undefined.
void multiply(const char *op, const at::Tensor &a, const at::Tensor &b, const at::Tensor &bias,
              const at::Tensor &out) {
  const Library &lib = library(op);
  const int32_t dtype = dtype_code(op, {"a", a});
  const int64_t k = a.size(-1), n = out.size(-1);
  const int64_t item = a.element_size();
  const Products products = fold(a, b, out);
  const bool batched = !products.batch.empty();
  const Extent batch = batched ? products.batch.back() : Extent{1, 0, 0, 0};
  const Extent rows = products.rows;

  const int64_t a_shape[] = {batch.size, rows.size, k};
  const int64_t a_stride[] = {batch.a, rows.a, a.stride(-1)};
  const int64_t b_shape[] = {batch.size, k, n};
  const int64_t b_stride[] = {batch.b, b.stride(-2), b.stride(-1)};
  const int64_t out_shape[] = {batch.size, rows.size, n};
  const int64_t out_stride[] = {batch.out, rows.out, 1};
  const int first = batched ? 0 : 1;
  bi_tensor bias_view{};
  if (bias.defined()) bias_view = view_of(bias);

  char *const a_data = static_cast<char *>(input_data(a));
  char *const b_data = static_cast<char *>(input_data(b));
  char *const out_data = static_cast<char *>(output_data(out));
  auto view = [&](char *data, const int64_t *shape, const int64_t *stride) {
    return bi_tensor{data, shape + first, stride + first, 3 - first, dtype};
  };
  for_each_outer(products, 1, [&](int64_t a_at, int64_t b_at, int64_t out_at) {
    const bi_tensor a_view = view(a_data + a_at * item, a_shape, a_stride);
    const bi_tensor b_view = view(b_data + b_at * item, b_shape, b_stride);
    const bi_tensor out_view = view(out_data + out_at * item, out_shape, out_stride);
    check_status(lib, op,
                 lib.bi_matmul(&a_view, &b_view, bias.defined() ? &bias_view : nullptr, &out_view,
                               at::get_num_threads()));
  });
}

at::Tensor product(const char *op, const at::Tensor &a, const at::Tensor &b) {
  check_arguments(op, {{"a", a}, {"b", b}});
  TORCH_CHECK(a.dim() >= 1, op, ": expected a to have at least 1 dimension, but got a scalar");
  TORCH_CHECK(b.dim() >= 1, op, ": expected b to have at least 1 dimension, but got a scalar");
  const bool a_vector = a.dim() == 1, b_vector = b.dim() == 1;
  const at::Tensor left = a_vector ? a.unsqueeze(0) : a;
  const at::Tensor right = b_vector ? b.unsqueeze(1) : b;
  TORCH_SYM_CHECK(left.sym_size(-1).sym_eq(right.sym_size(-2)), op,
                  ": a and b shapes cannot be multiplied: ", a.sym_sizes(), " and ", b.sym_sizes());
  c10::SymDimVector shape = at::infer_size_symdimvector(
      left.sym_sizes().slice(0, left.dim() - 2), right.sym_sizes().slice(0, right.dim() - 2));
  if (!a_vector) shape.push_back(left.sym_size(-2));
  if (!b_vector) shape.push_back(right.sym_size(-1));
  const at::Tensor out = at::empty_symint(shape, a.options());
  if (out.is_meta() || out.numel() == 0) return out;

  at::Tensor full = a_vector ? out.unsqueeze(b_vector ? -1 : -2) : out;
  if (b_vector) full = full.unsqueeze(-1);
  multiply(op, left, right, at::Tensor(), full);
  return out;
}

at::Tensor mm(const at::Tensor &a, const at::Tensor &b) {
  constexpr const char *op = "npu_mm_batch_invariant";
  TORCH_CHECK(a.dim() == 2, op, ": a must be a matrix, but has ", a.dim(), " dimensions");
  TORCH_CHECK(b.dim() == 2, op, ": b must be a matrix, but has ", b.dim(), " dimensions");
  return product(op, a, b);
}

at::Tensor matmul(const at::Tensor &a, const at::Tensor &b) {
  return product("npu_matmul_batch_invariant", a, b);
}

at::Tensor linear(const at::Tensor &x, const at::Tensor &weight,
                  const std::optional<at::Tensor> &bias) {
  constexpr const char *op = "npu_linear_batch_invariant";
  check_arguments(op, {{"x", x}, {"weight", weight}});
  TORCH_CHECK(weight.dim() == 2, op, ": weight must be a matrix [N, K], but has ", weight.dim(),
              " dimensions");
  TORCH_CHECK(x.dim() >= 1, op, ": expected x to have at least 1 dimension, but got a scalar");
  TORCH_SYM_CHECK(x.sym_size(-1).sym_eq(weight.sym_size(1)), op,
                  ": x and weight shapes cannot be multiplied: ", x.sym_sizes(), " and ",
                  weight.sym_sizes(), " transposed");
  if (bias) {
    check_arguments(op, {{"x", x}, {"bias", *bias}});
    TORCH_CHECK(bias->dim() == 1, op, ": bias must be a vector [N], but has ", bias->dim(),
                " dimensions");
    TORCH_SYM_CHECK(bias->sym_size(0).sym_eq(weight.sym_size(0)), op, ": expected bias of size ",
                    weight.sym_size(0), " (rows of weight), but got ", bias->sym_size(0));
  }
  c10::SymDimVector shape(x.sym_sizes().begin(), x.sym_sizes().end());
  shape.back() = weight.sym_size(0);
  const at::Tensor out = at::empty_symint(shape, x.options());
  if (out.is_meta() || out.numel() == 0) return out;

  const bool vector = x.dim() == 1;
  multiply(op, vector ? x.unsqueeze(0) : x, weight.t(), bias ? *bias : at::Tensor(),
           vector ? out.unsqueeze(0) : out);
  return out;
}

void register_kernels(torch::Library &m) {
  m.impl("npu_mm_batch_invariant", &mm);
  m.impl("npu_matmul_batch_invariant", &matmul);
  m.impl("npu_linear_batch_invariant", &linear);
}

}  // namespace

TORCH_LIBRARY_IMPL(batch_invariant_ops, CPU, m) { register_kernels(m); }
TORCH_LIBRARY_IMPL(batch_invariant_ops, Meta, m) { register_kernels(m); }

}  // namespace batch_invariant_ops
