// SPDX-License-Identifier: Apache-2.0
//
// exp and log, the same bits on every instruction set: only operations that IEEE 754 fixes.
#ifndef BI_CPU_EXP_LOG_H
#define BI_CPU_EXP_LOG_H

#include <cstdint>
#include <cstring>

#include "vec.h"

namespace bi {
namespace BI_ISA {

// e^x within 1 ulp, subnormal results included; exp(-inf) = 0, exp(inf) = inf, NaN stays NaN.
// x = n ln2 + r with |r| <= ln2/2 (Cody and Waite: ln2 in two parts, the first with 9 trailing zero
// bits, so that n * first is exact), then e^r = 1 + r + r^2 q(r). The coefficients of q are the
// output of exp_polynomial.py, with a relative error below 2^-27.9.
inline Vec exp(Vec x) {
  // exp(-104) < 2^-150 rounds to 0 and exp(89) > FLT_MAX overflows, by themselves.
  const Vec clamped = Vec::min(Vec::max(x, Vec::set1(-104.0f)), Vec::set1(89.0f));
  const Vec n = Vec::round(clamped * Vec::set1(0x1.715476p+0f));
  Vec r = Vec::fma(n, Vec::set1(-0x1.62e400p-1f), clamped);
  r = Vec::fma(n, Vec::set1(-0x1.7f7d1cp-20f), r);
  Vec q = Vec::set1(0x1.6a2434p-10f);
  q = Vec::fma(q, r, Vec::set1(0x1.1239e2p-7f));
  q = Vec::fma(q, r, Vec::set1(0x1.5558f2p-5f));
  q = Vec::fma(q, r, Vec::set1(0x1.555492p-3f));
  q = Vec::fma(q, r, Vec::set1(0x1.fffffcp-2f));
  const Vec p = Vec::fma(r * r, q, r) + Vec::set1(1.0f);
  return Vec::select_nan(x, x, Vec::scale2(p, n));
}

// Natural logarithm within 0.51 ulp. log(0) = -inf, log(inf) = inf, below 0 or NaN: NaN.
// In double, where it is a handful of operations once per row: x = 2^e m with m in
// [sqrt(1/2), sqrt(2)), s = (m - 1) / (m + 1), log m = 2 (s + s^3/3 + ... + s^21/21). |s| < 0.1716,
// so the first term left out is below 2^-60 of the sum.
inline float log(float x) {
  if (!(x > 0.0f)) {
    if (x == 0.0f) return -__builtin_inff();
    return __builtin_nanf("");
  }
  if (x == __builtin_inff()) return x;
  double m = x;  // normal in double, even where x is subnormal
  uint64_t u;
  std::memcpy(&u, &m, sizeof(u));
  int64_t e = static_cast<int64_t>(u >> 52) - 1023;
  u = (u & 0x000fffffffffffffu) | 0x3ff0000000000000u;
  std::memcpy(&m, &u, sizeof(u));  // in [1, 2)
  if (m >= 0x1.6a09e667f3bcdp+0) {
    m *= 0.5;
    e += 1;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double series = 0.0;
  for (int k = 21; k >= 3; k -= 2) series = (series + 1.0 / k) * z;
  return static_cast<float>(static_cast<double>(e) * 0x1.62e42fefa39efp-1 + 2.0 * (s + s * series));
}

}  // namespace BI_ISA
}  // namespace bi

#endif
