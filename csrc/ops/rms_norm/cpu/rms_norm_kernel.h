// SPDX-License-Identifier: Apache-2.0
#ifndef BI_OPS_RMS_NORM_KERNEL_H
#define BI_OPS_RMS_NORM_KERNEL_H

#include <cstdint>

#include "dispatch.h"
#include "strided.h"

namespace bi {

struct RmsNormArgs {
  // Operands of `outer` and of `inner`, the strides along a row.
  enum Operand { kX, kResidual, kOut, kResidualOut, kRstd, kOperands };
  const void *x;
  const void *residual;  // or NULL
  const float *weight;   // [length], exact in the weight's type; or NULL
  void *out;
  void *residual_out;  // NULL where residual is
  float *rstd;         // or NULL
  int32_t dtype;       // of x, residual, out, residual_out
  int32_t weight_dtype;
  float eps;
  int64_t length;
  Nest<kOperands> outer;
  int64_t inner[kOperands];
};

// Rows [begin, end); scratch holds `length` floats.
BI_KERNEL(void, rms_norm_rows,
          (const RmsNormArgs &args, int64_t begin, int64_t end, float *scratch))

}  // namespace bi

#endif
