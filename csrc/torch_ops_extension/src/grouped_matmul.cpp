// SPDX-License-Identifier: Apache-2.0
//
// npu_grouped_matmul and its packed form: each expert of a mixture multiplies its own rows.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "arguments.h"
#include "library.h"
#include "packed.h"

namespace batch_invariant_ops {
namespace {

void check_rows(const char *op, const at::Tensor &x, const at::Tensor &group_list) {
  TORCH_CHECK(x.dim() == 2, op, ": x must be a matrix [T, K], but has ", x.dim(), " dimensions");
  check_device(op, {"x", x}, {"group_list", group_list});
  TORCH_CHECK(group_list.scalar_type() == at::kLong, op,
              ": expected group_list of dtype Long, but ", "got ", group_list.scalar_type());
  TORCH_CHECK(group_list.dim() == 1, op, ": group_list must be a vector [E], but has ",
              group_list.dim(), " dimensions");
}

// The ends of each expert's rows, checked: ascending from 0 or more to the number of rows.
at::Tensor row_ends(const char *op, const at::Tensor &x, const at::Tensor &group_list) {
  const at::Tensor ends = group_list.contiguous();
  const auto *end = ends.const_data_ptr<int64_t>();
  int64_t before = 0;
  for (int64_t e = 0; e < ends.numel(); ++e) {
    TORCH_CHECK(end[e] >= before, op, ": group_list must be ascending row ends, but group_list[", e,
                "] is ", end[e], " after ", before);
    before = end[e];
  }
  TORCH_CHECK(before == x.size(0), op, ": expected group_list to end at the ", x.size(0),
              " rows of x, but its last entry is ", before);
  return ends;
}

void multiply(const char *op, const Library &lib, const at::Tensor &x, const bi_tensor *weight,
              const at::Tensor *packed, const at::Tensor &group_list, const at::Tensor &out) {
  const at::Tensor ends = row_ends(op, x, group_list);
  if (out.numel() == 0) return;
  const bi_tensor x_view = view_of(x);
  const bi_tensor out_view = output_view(out);
  check_status(lib, op,
               lib.bi_grouped_matmul(&x_view, weight, packed ? input_data(*packed) : nullptr,
                                     packed ? static_cast<size_t>(packed->numel()) : 0,
                                     ends.const_data_ptr<int64_t>(), ends.numel(), &out_view,
                                     at::get_num_threads()));
}

at::Tensor grouped_matmul(const at::Tensor &x, const at::Tensor &weight,
                          const at::Tensor &group_list) {
  constexpr const char *op = "npu_grouped_matmul_batch_invariant";
  check_arguments(op, {{"x", x}, {"weight", weight}});
  check_rows(op, x, group_list);
  TORCH_CHECK(weight.dim() == 3, op, ": weight must be [E, N, K], but has ", weight.dim(),
              " dimensions");
  TORCH_SYM_CHECK(x.sym_size(1).sym_eq(weight.sym_size(2)), op,
                  ": x and weight shapes cannot be multiplied: ", x.sym_sizes(), " and ",
                  weight.sym_sizes(), " transposed");
  TORCH_SYM_CHECK(group_list.sym_size(0).sym_eq(weight.sym_size(0)), op,
                  ": expected group_list of size ", weight.sym_size(0),
                  " (experts of weight), but got ", group_list.sym_size(0));
  const at::Tensor out = at::empty_symint({x.sym_size(0), weight.sym_size(1)}, x.options());
  if (out.is_meta()) return out;
  const at::Tensor b = weight.transpose(1, 2);
  const bi_tensor b_view = view_of(b);
  multiply(op, library(op), x, &b_view, nullptr, group_list, out);
  return out;
}

at::Tensor grouped_matmul_packed(const at::Tensor &x, const at::Tensor &packed, int64_t n,
                                 const at::Tensor &group_list) {
  constexpr const char *op = "npu_grouped_matmul_packed_batch_invariant";
  check_arguments(op, {{"x", x}});
  check_rows(op, x, group_list);
  TORCH_CHECK(n >= 0, op, ": expected n >= 0, but got ", n);
  const Library &lib = library(op);
  check_packed(op, lib, {"x", x}, packed, group_list.sym_size(0).guard_int(__FILE__, __LINE__),
               x.sym_size(1).guard_int(__FILE__, __LINE__), n);
  const at::Tensor out = at::empty_symint({x.sym_size(0), n}, x.options());
  if (out.is_meta()) return out;
  multiply(op, lib, x, nullptr, &packed, group_list, out);
  return out;
}

void register_kernels(torch::Library &m) {
  m.impl("npu_grouped_matmul_batch_invariant", &grouped_matmul);
  m.impl("npu_grouped_matmul_packed_batch_invariant", &grouped_matmul_packed);
}

}  // namespace

TORCH_LIBRARY_IMPL(batch_invariant_ops, CPU, m) { register_kernels(m); }
TORCH_LIBRARY_IMPL(batch_invariant_ops, Meta, m) { register_kernels(m); }

}  // namespace batch_invariant_ops
