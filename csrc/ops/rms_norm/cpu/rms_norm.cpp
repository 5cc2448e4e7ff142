// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include "float_types.h"
#include "rms_norm_kernel.h"
#include "tensor_check.h"

namespace bi {
namespace {

// Elements a task should read at least: a thread costs a few microseconds to wake.
constexpr int64_t kTaskElements = 1 << 14;

std::vector<float> float_weight(const bi_tensor &weight) {
  std::vector<float> values(static_cast<size_t>(weight.shape[0]));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = float_at(weight.data, weight.dtype, static_cast<int64_t>(i) * weight.stride[0]);
  return values;
}

void rms_norm(const bi_tensor *x, const bi_tensor *residual, const bi_tensor *weight, double eps,
              const bi_tensor *out, const bi_tensor *residual_out, const bi_tensor *rstd,
              int threads) {
  check_tensor(x, "x");
  check_float(*x, "x");
  if (x->ndim < 1) fail(BI_INVALID_ARGUMENT, "x: expected at least 1 dimension, found 0");
  auto check_like_x = [&](const bi_tensor *t, const char *name) {
    check_tensor(t, name);
    check_dtype_in(*t, name, x->dtype, x->dtype);
    check_same_shape(*t, name, *x, "x");
  };
  check_like_x(out, "out");
  if ((residual == nullptr) != (residual_out == nullptr))
    fail(BI_INVALID_ARGUMENT, "residual and residual_out: expected both or neither");
  if (residual != nullptr) {
    check_like_x(residual, "residual");
    check_like_x(residual_out, "residual_out");
  }
  const int last = x->ndim - 1;
  const int64_t length = x->shape[last];
  if (weight != nullptr) {
    check_tensor(weight, "weight");
    check_dtype_in(*weight, "weight", x->dtype, BI_FLOAT32);
    if (weight->ndim != 1 || weight->shape[0] != length)
      fail(BI_INVALID_ARGUMENT,
           "weight: expected shape [" + std::to_string(length) + "], found " + shape_text(*weight));
  }
  if (rstd != nullptr) {
    check_tensor(rstd, "rstd");
    check_dtype_in(*rstd, "rstd", BI_FLOAT32, BI_FLOAT32);
    bool fits = rstd->ndim == x->ndim;
    for (int d = 0; fits && d < x->ndim; ++d)
      fits = rstd->shape[d] == (d == last ? 1 : x->shape[d]);
    if (!fits)
      fail(BI_INVALID_ARGUMENT, "rstd: expected x's shape " + shape_text(*x) +
                                    " with a last extent of 1, found " + shape_text(*rstd));
  }
  if (!(eps >= 0.0) || !std::isfinite(eps))
    fail(BI_INVALID_ARGUMENT, "eps: expected a finite number, 0 or above");
  check_threads(threads);

  using Args = RmsNormArgs;
  Args args = {};
  args.x = x->data;
  args.out = out->data;
  args.residual = residual != nullptr ? residual->data : nullptr;
  args.residual_out = residual != nullptr ? residual_out->data : nullptr;
  args.rstd = rstd != nullptr ? static_cast<float *>(rstd->data) : nullptr;
  args.dtype = x->dtype;
  args.eps = static_cast<float>(eps);
  args.length = length;
  // Rows without elements have no address to step from; only their rstd is written.
  const bool any = element_count(*x) > 0;
  if (!any && (rstd == nullptr || element_count(*rstd) == 0)) return;
  for (int d = 0; d < x->ndim; ++d) {
    int64_t stride[Args::kOperands] = {};
    if (any) {
      stride[Args::kX] = x->stride[d];
      stride[Args::kOut] = out->stride[d];
    }
    if (any && residual != nullptr) {
      stride[Args::kResidual] = residual->stride[d];
      stride[Args::kResidualOut] = residual_out->stride[d];
    }
    if (rstd != nullptr) stride[Args::kRstd] = rstd->stride[d];
    if (d < last)
      nest_append(args.outer, x->shape[d], stride);
    else
      std::copy(std::begin(stride), std::end(stride), args.inner);
  }
  const int64_t rows = nest_count(args.outer);
  std::vector<float> weight_values;
  if (weight != nullptr) {
    weight_values = float_weight(*weight);
    args.weight = weight_values.data();
    args.weight_dtype = weight->dtype;
  }
  // One piece of scratch per task, so tasks are few: up to four per thread, to even out the load.
  const int64_t grain = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, length));
  const int64_t tasks =
      std::max<int64_t>(1, std::min<int64_t>((rows + grain - 1) / grain, 4 * int64_t{threads}));
  std::vector<float> scratch(static_cast<size_t>(tasks * length));
  auto *const kernel = &BI_CALL(rms_norm_rows);
  parallel_for(tasks, threads, [&](int64_t task) {
    kernel(args, rows * task / tasks, rows * (task + 1) / tasks, scratch.data() + task * length);
  });
}

}  // namespace
}  // namespace bi

extern "C" bi_status bi_rms_norm(const bi_tensor *x, const bi_tensor *residual,
                                 const bi_tensor *weight, double eps, const bi_tensor *out,
                                 const bi_tensor *residual_out, const bi_tensor *rstd,
                                 int threads) {
  return bi::guarded(
      [&] { bi::rms_norm(x, residual, weight, eps, out, residual_out, rstd, threads); });
}
