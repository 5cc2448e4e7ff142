// SPDX-License-Identifier: Apache-2.0
//
// Kernels of reduce_sum and reduce_mean. The order of the additions is csrc/cpu/reduce.h's.
#ifndef BI_OPS_REDUCE_SUM_KERNEL_H
#define BI_OPS_REDUCE_SUM_KERNEL_H

#include <cstdint>

#include "dispatch.h"
#include "strided.h"

namespace bi {

// Columns (neighbouring outputs) that are summed side by side, one per vector lane.
constexpr int64_t kSumColumns = 32;

// Outputs are numbered outer * columns + column.
struct SumArgs {
  const void *x;
  void *out;
  int32_t x_dtype, out_dtype;  // of floating-point types
  Nest<1> reduced;             // the reduced extents: stride in x
  Nest<2> outer;               // the others, without the columns: strides in x and in out
  // An extent that is not reduced and has a unit stride in x; 1 where none was chosen.
  int64_t columns;
  int64_t column_out_stride;
  int64_t length;  // terms per output
  int64_t blocks;  // blocks per output
  float divisor;   // 1 for a sum
  // [outputs, blocks], or NULL where blocks is 1: then results are written at once.
  float *partial;
};

// Units are (outer, block), the block running faster.
BI_KERNEL(void, sum_rows, (const SumArgs &args, int64_t begin, int64_t end))
// Units are (outer, group of kSumColumns columns, block), the block running fastest.
BI_KERNEL(void, sum_columns, (const SumArgs &args, int64_t begin, int64_t end))
// Adds the partial sums of outputs [begin, end).
BI_KERNEL(void, sum_finish, (const SumArgs &args, int64_t begin, int64_t end))

// The body of bi_reduce_sum and bi_reduce_mean.
void reduce_entry(const bi_tensor *x, const int32_t *dims, int32_t ndims, const bi_tensor *out,
                  int threads, bool mean);

}  // namespace bi

#endif
