// SPDX-License-Identifier: Apache-2.0
//
// Weights packed once at load: npu_weight_pack and npu_linear_packed. The packed form belongs to
// the machine and the library that made it; on the Meta device its size is asked of the library
// too.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <optional>

#include "arguments.h"
#include "library.h"
#include "packed.h"
#include "products.h"

namespace batch_invariant_ops {

void check_packed(const char *op, const Library &lib, const Argument &x, const at::Tensor &packed,
                  int64_t experts, int64_t k, int64_t n) {
  check_device(op, x, {"packed", packed});
  TORCH_CHECK(packed.scalar_type() == at::kByte && packed.dim() == 1 && packed.is_contiguous(), op,
              ": packed must be what npu_weight_pack_batch_invariant returned (a contiguous vector "
              "of Byte), but is ",
              packed.scalar_type(), " with ", packed.dim(), " dimensions");
  const auto size =
      static_cast<int64_t>(lib.bi_matmul_packed_size(experts, k, n, dtype_code(op, x)));
  TORCH_CHECK(size > 0 || experts == 0 || k == 0 || n == 0, op, ": no weight of ", experts, " x [",
              n, ", ", k, "] can exist: correct n");
  TORCH_CHECK(packed.sym_size(0) == size, op, ": packed has ", packed.sym_size(0),
              " bytes, and a weight of ", experts, " x [", n, ", ", k, "] of ",
              x.tensor.scalar_type(), " has ", size, ": pack the weight again, or correct n");
}

namespace {

at::Tensor weight_pack(const at::Tensor &weight) {
  constexpr const char *op = "npu_weight_pack_batch_invariant";
  check_arguments(op, {{"weight", weight}});
  TORCH_CHECK(weight.dim() == 2 || weight.dim() == 3, op,
              ": weight must be [N, K] or [E, N, K], but has ", weight.dim(), " dimensions");
  const Library &lib = library(op);
  const int64_t experts = weight.dim() == 3 ? weight.sym_size(0).guard_int(__FILE__, __LINE__) : 1;
  const int64_t n = weight.sym_size(-2).guard_int(__FILE__, __LINE__);
  const int64_t k = weight.sym_size(-1).guard_int(__FILE__, __LINE__);
  const size_t size = lib.bi_matmul_packed_size(experts, k, n, dtype_code(op, {"weight", weight}));
  const at::Tensor packed =
      at::empty({static_cast<int64_t>(size)}, weight.options().dtype(at::kByte));
  if (packed.is_meta()) return packed;

  const at::Tensor b = weight.transpose(-1, -2);
  const bi_tensor b_view = view_of(b);
  check_status(lib, op,
               lib.bi_matmul_pack(&b_view, output_data(packed), size, at::get_num_threads()));
  return packed;
}

at::Tensor linear_packed(const at::Tensor &x, const at::Tensor &packed, int64_t n,
                         const std::optional<at::Tensor> &bias) {
  constexpr const char *op = "npu_linear_packed_batch_invariant";
  check_arguments(op, {{"x", x}});
  TORCH_CHECK(x.dim() >= 1, op, ": expected x to have at least 1 dimension, but got a scalar");
  TORCH_CHECK(n >= 0, op, ": expected n >= 0, but got ", n);
  if (bias) {
    check_arguments(op, {{"x", x}, {"bias", *bias}});
    TORCH_CHECK(bias->dim() == 1, op, ": bias must be a vector [N], but has ", bias->dim(),
                " dimensions");
    TORCH_SYM_CHECK(bias->sym_size(0).sym_eq(n), op, ": expected bias of size ", n,
                    " (n), but got ", bias->sym_size(0));
  }
  const Library &lib = library(op);
  const int64_t k = x.sym_size(-1).guard_int(__FILE__, __LINE__);
  check_packed(op, lib, {"x", x}, packed, 1, k, n);
  c10::SymDimVector shape(x.sym_sizes().begin(), x.sym_sizes().end());
  shape.back() = n;
  const at::Tensor out = at::empty_symint(shape, x.options());
  if (out.is_meta() || out.numel() == 0) return out;

  const bool vector = x.dim() == 1;
  const at::Tensor rows = vector ? x.unsqueeze(0) : x;
  const Products products = fold(rows, at::Tensor(), vector ? out.unsqueeze(0) : out);
  const int32_t dtype = dtype_code(op, {"x", x});
  const int64_t a_shape[] = {products.rows.size, k};
  const int64_t a_stride[] = {products.rows.a, x.stride(-1)};
  const int64_t out_shape[] = {products.rows.size, n};
  const int64_t out_stride[] = {products.rows.out, 1};
  bi_tensor bias_view{};
  if (bias) bias_view = view_of(*bias);
  char *const x_data = static_cast<char *>(input_data(x));
  char *const out_data = static_cast<char *>(output_data(out));
  const int64_t item = x.element_size();
  for_each_outer(products, 0, [&](int64_t x_at, int64_t, int64_t out_at) {
    const bi_tensor a_view{x_data + x_at * item, a_shape, a_stride, 2, dtype};
    const bi_tensor out_view{out_data + out_at * item, out_shape, out_stride, 2, dtype};
    check_status(
        lib, op,
        lib.bi_matmul_packed(&a_view, input_data(packed), static_cast<size_t>(packed.numel()),
                             bias ? &bias_view : nullptr, &out_view, at::get_num_threads()));
  });
  return out;
}

void register_kernels(torch::Library &m) {
  m.impl("npu_weight_pack_batch_invariant", &weight_pack);
  m.impl("npu_linear_packed_batch_invariant", &linear_packed);
}

}  // namespace

TORCH_LIBRARY_IMPL(batch_invariant_ops, CPU, m) { register_kernels(m); }
TORCH_LIBRARY_IMPL(batch_invariant_ops, Meta, m) { register_kernels(m); }

}  // namespace batch_invariant_ops
