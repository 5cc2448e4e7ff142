// SPDX-License-Identifier: Apache-2.0
//
// The one summation order of every reduction (sum, mean, softmax, log_softmax, rms_norm).
//
// A row of n terms is cut into blocks of kSumBlock, from term 0 on. In a block, term i goes to fp32
// lane i mod kSumLanes, each lane adds its terms in ascending order from +0, and the lanes are
// folded in halves: lane j += lane j + 32, then 16, 8, 4, 2, 1. Block sums are added in ascending
// order by a Sum, which carries the rounding errors of its additions along and adds them at the
// end. Nothing of this depends on anything but n.
//
// Error, with u = 2^-24: a block's is at most (ceil(n/64) + 5) u sum|t| for n terms, 69 u for a
// full block, and the Sum's adds u |S| + O(blocks u^2) sum|t|. Hence
//   |error| <= 70 u sum|t| + u |S|  whatever n is, to first order.
//
// Absent terms of a last, shorter block count as +0, which leaves a lane's bits unchanged: a lane
// starts from +0 and so never holds -0.
#ifndef BI_CPU_SUM_ORDER_H
#define BI_CPU_SUM_ORDER_H

#include <cstdint>

namespace bi {

constexpr int64_t kSumLanes = 64;
constexpr int64_t kSumBlock = 4096;

// Blocks of a row of n terms: at least one, so that an empty row has a sum too.
static inline int64_t block_count(int64_t n) { return n > 0 ? (n + kSumBlock - 1) / kSumBlock : 1; }

// Terms in block `block` of a row of n.
static inline int64_t block_length(int64_t n, int64_t block) {
  const int64_t left = n - block * kSumBlock;
  return left < kSumBlock ? left : kSumBlock;
}

}  // namespace bi

#endif
