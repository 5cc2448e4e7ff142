// SPDX-License-Identifier: Apache-2.0
//
// The summation order of sum_order.h, along a vector and across vectors.
#ifndef BI_CPU_REDUCE_H
#define BI_CPU_REDUCE_H

#include <cstdint>

#include "sum_order.h"
#include "vec.h"

namespace bi {
namespace BI_ISA {

// Sum of one block of n <= kSumBlock terms that lie along the vector.
// term(acc, i) returns acc with terms i .. i+15 added lane by lane, term(acc, i, count) the same
// for the first `count` of them.
template <typename Term>
inline float block_sum(int64_t n, Term &&term) {
  Vec a0 = Vec::zero(), a1 = Vec::zero(), a2 = Vec::zero(), a3 = Vec::zero();
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    a0 = term(a0, i);
    a1 = term(a1, i + 16);
    a2 = term(a2, i + 32);
    a3 = term(a3, i + 48);
  }
  if (i < n) {
    Vec *const acc[4] = {&a0, &a1, &a2, &a3};
    for (int v = 0; i < n; ++v, i += kLanes) {
      const int64_t left = n - i;
      *acc[v] = left >= kLanes ? term(*acc[v], i) : term(*acc[v], i, static_cast<int>(left));
    }
  }
  return reduce_add((a0 + a2) + (a1 + a3));
}

// The same sums for kVecs * 16 rows at once, one row per lane: term i of all rows is added by
// term(acc, i), acc being kVecs vectors. Bits are those of block_sum. `sums` gets kVecs vectors.
template <int kVecs, typename Term>
inline void block_sum_columns(int64_t n, Vec *sums, Term &&term) {
  Vec acc[kSumLanes][kVecs];
  int64_t lanes = 1;
  while (lanes < n && lanes < kSumLanes) lanes *= 2;
  for (int64_t l = 0; l < lanes; ++l)
    for (int v = 0; v < kVecs; ++v) acc[l][v] = Vec::zero();
  for (int64_t i = 0; i < n; ++i) term(acc[i % kSumLanes], i);
  for (int64_t half = lanes / 2; half > 0; half /= 2)
    for (int64_t l = 0; l < half; ++l)
      for (int v = 0; v < kVecs; ++v) acc[l][v] = acc[l][v] + acc[l + half][v];
  for (int v = 0; v < kVecs; ++v) sums[v] = acc[0][v];
}

// Adds block sums in ascending order. The rounding error of each addition is exact in fp32 (Knuth's
// TwoSum); the errors are added up separately. An infinite or NaN sum is returned as it is, since
// its error terms mean nothing. One lane per row.
struct Sum {
  Vec sum = Vec::zero();
  Vec error = Vec::zero();
  void add(Vec block) {
    const Vec t = sum + block;
    const Vec z = t - sum;
    error = error + ((sum - (t - z)) + (block - z));
    sum = t;
  }
  Vec value() const { return Vec::select_nan(sum - sum, sum, sum + error); }
};

// The same for one row whose block sums lie in memory.
inline float add_blocks(const float *sums, int64_t blocks) {
  Sum total;
  for (int64_t b = 0; b < blocks; ++b) total.add(Vec::set1(sums[b]));
  return total.value().first();
}

}  // namespace BI_ISA
}  // namespace bi

#endif
