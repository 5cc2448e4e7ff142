// SPDX-License-Identifier: Apache-2.0
//
// Checks and views of operands that matmul and grouped matmul share.
#ifndef BI_MATMUL_OPERANDS_H
#define BI_MATMUL_OPERANDS_H

#include <cstdint>
#include <vector>

#include "batch_invariant.h"
#include "packed.h"
#include "tensor_check.h"
#include "tile.h"

namespace bi {

// float32, bfloat16 or float16.
void check_matmul_dtype(const char *name, int32_t dtype);
inline int64_t element_bytes(int32_t dtype) { return dtype == BI_FLOAT32 ? 4 : 2; }

// A tensor of min_ndim to max_ndim extents of a type of ours.
void check_matrix(const char *name, const bi_tensor *t, int32_t min_ndim, int32_t max_ndim);
// `like` names the argument whose type `dtype` is.
void check_same_dtype(const char *name, const bi_tensor &t, const char *like, int32_t dtype);
// `what` says where the expected size comes from.
void check_extent(const char *name, const bi_tensor &t, int32_t dim, int64_t expected,
                  const char *what);
// A unit stride in the last extent.
void check_unit_columns(const char *name, const bi_tensor &t);
// a * b; throws Error naming `name` where that does not fit in 64 bits.
int64_t checked_product(const char *name, int64_t a, int64_t b);

// The header of `packed`, checked against a's type and K and against the number of experts.
PackedWeight check_packed(const void *packed, size_t size, const bi_tensor &a, int64_t experts);

// bias [n] or null, widened; empty for null.
std::vector<float> bias_as_float(const bi_tensor *bias, int32_t dtype, int64_t n);

// Matrix i of [B, R, C], or the matrix [R, C] itself.
Matrix matrix_of(const bi_tensor &t, int64_t i);

}  // namespace bi

#endif
