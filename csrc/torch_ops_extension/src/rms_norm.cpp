// SPDX-License-Identifier: Apache-2.0
//
// npu_rms_norm and npu_add_rms_norm, over the last extent.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <tuple>

#include "arguments.h"
#include "library.h"

namespace batch_invariant_ops {
namespace {

void check_gamma(const char *op, const char *name, const at::Tensor &x, const at::Tensor &gamma) {
  check_arguments(op, {{name, x}});
  check_device(op, {name, x}, {"gamma", gamma});
  TORCH_CHECK(gamma.scalar_type() == x.scalar_type() || gamma.scalar_type() == at::kFloat, op,
              ": expected gamma of dtype ", x.scalar_type(), " (that of ", name,
              ") or Float, but got ", gamma.scalar_type());
  TORCH_CHECK(x.dim() >= 1, op, ": expected ", name,
              " to have at least 1 dimension, but got a scalar");
  TORCH_CHECK(gamma.dim() == 1, op, ": gamma must be a vector [D], but has ", gamma.dim(),
              " dimensions");
  TORCH_SYM_CHECK(gamma.sym_size(0).sym_eq(x.sym_size(-1)), op, ": expected gamma of size ",
                  x.sym_size(-1), " (last dimension of ", name, "), but got ", gamma.sym_size(0));
}

at::Tensor empty_rstd(const at::Tensor &x) {
  c10::SymDimVector shape(x.sym_sizes().begin(), x.sym_sizes().end());
  shape.back() = 1;
  return at::empty_symint(shape, x.options().dtype(at::kFloat));
}

std::tuple<at::Tensor, at::Tensor> rms_norm(const at::Tensor &x, const at::Tensor &gamma,
                                            double epsilon) {
  constexpr const char *op = "npu_rms_norm_batch_invariant";
  check_gamma(op, "x", x, gamma);
  const at::Tensor out = at::empty_symint(x.sym_sizes(), x.options());
  const at::Tensor rstd = empty_rstd(x);
  if (out.is_meta() || rstd.numel() == 0) return {out, rstd};

  const Library &lib = library(op);
  const bi_tensor x_view = view_of(x), gamma_view = view_of(gamma);
  const bi_tensor out_view = output_view(out), rstd_view = output_view(rstd);
  check_status(lib, op,
               lib.bi_rms_norm(&x_view, nullptr, &gamma_view, epsilon, &out_view, nullptr,
                               &rstd_view, at::get_num_threads()));
  return {out, rstd};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> add_rms_norm(const at::Tensor &x1,
                                                            const at::Tensor &x2,
                                                            const at::Tensor &gamma,
                                                            double epsilon) {
  constexpr const char *op = "npu_add_rms_norm_batch_invariant";
  check_gamma(op, "x1", x1, gamma);
  check_arguments(op, {{"x1", x1}, {"x2", x2}});
  TORCH_CHECK(x1.dim() == x2.dim(), op, ": expected x1 and x2 of the same shape, but got ",
              x1.sym_sizes(), " and ", x2.sym_sizes());
  for (int64_t d = 0; d < x1.dim(); ++d) {
    TORCH_SYM_CHECK(x1.sym_size(d).sym_eq(x2.sym_size(d)), op,
                    ": expected x1 and x2 of the same shape, but got ", x1.sym_sizes(), " and ",
                    x2.sym_sizes());
  }
  const at::Tensor out = at::empty_symint(x1.sym_sizes(), x1.options());
  const at::Tensor sum = at::empty_symint(x1.sym_sizes(), x1.options());
  const at::Tensor rstd = empty_rstd(x1);
  if (out.is_meta() || rstd.numel() == 0) return {out, rstd, sum};

  const Library &lib = library(op);
  const bi_tensor x1_view = view_of(x1), x2_view = view_of(x2), gamma_view = view_of(gamma);
  const bi_tensor out_view = output_view(out), sum_view = output_view(sum);
  const bi_tensor rstd_view = output_view(rstd);
  check_status(lib, op,
               lib.bi_rms_norm(&x1_view, &x2_view, &gamma_view, epsilon, &out_view, &sum_view,
                               &rstd_view, at::get_num_threads()));
  return {out, rstd, sum};
}

void register_kernels(torch::Library &m) {
  m.impl("npu_rms_norm_batch_invariant", &rms_norm);
  m.impl("npu_add_rms_norm_batch_invariant", &add_rms_norm);
}

}  // namespace

TORCH_LIBRARY_IMPL(batch_invariant_ops, CPU, m) { register_kernels(m); }
TORCH_LIBRARY_IMPL(batch_invariant_ops, Meta, m) { register_kernels(m); }

}  // namespace batch_invariant_ops
