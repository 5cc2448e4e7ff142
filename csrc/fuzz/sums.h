// SPDX-License-Identifier: Apache-2.0
//
// The summation order of every reduction (csrc/cpu/sum_order.h), in Reals.
#ifndef BI_FUZZ_SUMS_H
#define BI_FUZZ_SUMS_H

#include <algorithm>
#include <cstdint>
#include <vector>

#include "real.h"

namespace bi_fuzz {

// step(lane, i) is the lane after term i.
template <typename Step>
Real ordered_sum(int64_t n, Step &&step) {
  constexpr int64_t kLanes = 64, kBlock = 4096;
  Real total;
  for (int64_t first = 0; first == 0 || first < n; first += kBlock) {
    Real lane[kLanes];
    for (int64_t i = first; i < std::min(n, first + kBlock); ++i)
      lane[i % kLanes] = step(lane[i % kLanes], i);
    for (int64_t half = kLanes / 2; half > 0; half /= 2)
      for (int64_t l = 0; l < half && l + half < std::max<int64_t>(n, 1); ++l)
        lane[l] = add(lane[l], lane[l + half]);
    total = add(total, lane[0]);
  }
  return total;
}

inline Real ordered_sum(const std::vector<Real> &terms) {
  return ordered_sum(static_cast<int64_t>(terms.size()), [&](Real lane, int64_t i) {
    return add(lane, terms[static_cast<size_t>(i)]);
  });
}

}  // namespace bi_fuzz

#endif
