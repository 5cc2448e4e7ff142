// SPDX-License-Identifier: Apache-2.0
//
// Kernels of softmax and log_softmax. The order of the sum is csrc/cpu/sum_order.h's.
#ifndef BI_OPS_SOFTMAX_KERNEL_H
#define BI_OPS_SOFTMAX_KERNEL_H

#include <cstdint>

#include "dispatch.h"
#include "strided.h"

namespace bi {

// Columns (neighbouring rows of the softmax) that are computed side by side, one per vector lane.
constexpr int64_t kSoftmaxColumns = 32;

struct SoftmaxArgs {
  const void *x;
  void *out;
  int32_t x_dtype;
  int32_t out_dtype;  // x's or float32
  bool log;
  int64_t length;      // of a row
  int64_t x_stride;    // along a row
  int64_t out_stride;  // along a row
  Nest<2> outer;       // the other extents, without the columns: strides in x and in out
  // An extent other than the row's with a unit stride in x and out; 1 where none was chosen.
  int64_t columns;
  // For rows that are cut into blocks of kSumBlock: [outer, blocks] and [outer].
  float *block_max, *block_sum;
  float *row_max, *row_sum;
};

// Whole rows with unit strides.
BI_KERNEL(void, softmax_rows, (const SoftmaxArgs &args, int64_t begin, int64_t end))
// Whole rows with any strides; scratch holds `length` floats.
BI_KERNEL(void, softmax_gathered_rows,
          (const SoftmaxArgs &args, int64_t begin, int64_t end, float *scratch))
// Units are (outer, group of kSoftmaxColumns columns).
BI_KERNEL(void, softmax_columns, (const SoftmaxArgs &args, int64_t begin, int64_t end))

// Long rows with unit strides, block by block; units are (outer, block). In this order, each for
// all units before the next: block_max, fold_max (rows), block_sum, fold_sum (rows), write.
BI_KERNEL(void, softmax_block_max, (const SoftmaxArgs &args, int64_t begin, int64_t end))
BI_KERNEL(void, softmax_fold_max, (const SoftmaxArgs &args, int64_t begin, int64_t end))
BI_KERNEL(void, softmax_block_sum, (const SoftmaxArgs &args, int64_t begin, int64_t end))
BI_KERNEL(void, softmax_fold_sum, (const SoftmaxArgs &args, int64_t begin, int64_t end))
BI_KERNEL(void, softmax_block_write, (const SoftmaxArgs &args, int64_t begin, int64_t end))

// The body of bi_softmax and bi_log_softmax.
void softmax_entry(const bi_tensor *x, int32_t dim, const bi_tensor *out, int threads, bool log);

}  // namespace bi

#endif
