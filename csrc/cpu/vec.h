// SPDX-License-Identifier: Apache-2.0
//
// Sixteen fp32 lanes, for the instruction set this translation unit is compiled for.
//
// Kernels are written once, against `Vec`, and compiled once for each instruction set into a
// namespace of its own (BI_ISA). Every operation below is defined lane by lane by IEEE 754 with
// round-to-nearest, fused multiply-add included, so all instruction sets give the same bits. What
// must not be used in a kernel is anything whose result IEEE does not fix: rsqrt and rcp
// approximations, libm functions, a compiler's own contraction (-ffp-contract=off is set).
//
// What each of vec_<instruction set>.h gives, `p` being a pointer to float, bf16 or f16:
//
//   zero(), set1(x)
//   load(p)                  sixteen elements, widened (exact)
//   load_n(p, n, fill = 0)   the first n (0 <= n <= 16); the other lanes are `fill`, and their
//                            memory is not touched
//   store(p), store_n(p, n)  rounded to nearest, ties to even (dtype.h)
//   a + b, a - b, a * b, a / b, sqrt(a)
//   fma(a, b, c)             a * b + c, rounded once
//   max(a, b), min(a, b)     a > b ? a : b and a < b ? a : b: b where either is NaN
//   round(a)                 to the nearest integer, ties to even
//   scale2(x, n)             x * 2^n, rounded once, for |x| >= 1/2 (or NaN) and integral n in
//                            [-252, 254]
//   select_lt(x, y, a, b)    x < y ? a : b; a comparison with NaN is false
//   select_nan(x, a, b)      x is NaN ? a : b
//   keep(x, begin, end, fill)  lanes from `begin` on and before `end` (0 <= begin, end <= 16),
//                            `fill` elsewhere
//   round_bf16(x), round_f16(x)  each lane rounded to that type and back
//   first()                  lane 0
//   largest()                the largest lane, of lanes without NaN
//
// vec_test.cc holds each of them to this, for every instruction set.
#ifndef BI_CPU_VEC_H
#define BI_CPU_VEC_H

namespace bi {
namespace BI_ISA {
constexpr int kLanes = 16;
}
}  // namespace bi

#if defined(BI_VEC_AVX512)
#include "vec_avx512.h"
#elif defined(BI_VEC_AVX2)
#include "vec_avx2.h"
#elif defined(BI_VEC_NEON)
#include "vec_neon.h"
#else
#include "vec_portable.h"
#endif

namespace bi {
namespace BI_ISA {

// Sum of the lanes, halves folded onto one another: 8, 4, 2, 1. The order is part of the contract.
inline float reduce_add(Vec x) {
  float t[kLanes];
  x.store(t);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) t[i] += t[i + half];
  return t[0];
}

}  // namespace BI_ISA
}  // namespace bi

#endif
