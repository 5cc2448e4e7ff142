// SPDX-License-Identifier: Apache-2.0
//
// words.h for AVX2: two registers.
#ifndef BI_CPU_WORDS_AVX2_H
#define BI_CPU_WORDS_AVX2_H

#include <cstring>

#include "vec.h"

namespace bi {
namespace BI_ISA {

struct Words {
  __m256i lo, hi;
  static Words zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static Words load(const void *p) {
    const auto *v = static_cast<const __m256i *>(p);
    return {_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
  }
  static Words load_run(const float *p, int64_t n) {
    if (n >= 16) return load(p);
    const int count = static_cast<int>(n);
    const auto *i = reinterpret_cast<const int *>(p);
    return {_mm256_maskload_epi32(i, lane_mask(count, 0)),
            _mm256_maskload_epi32(n > 8 ? i + 8 : i, lane_mask(count, 1))};
  }
  template <typename Half>
  static Words load_run(const Half *p, int64_t n) {
    if (n >= 32) return load(p).halves_swapped();
    Half all[32] = {};
    std::memcpy(all, p, static_cast<size_t>(n) * sizeof(Half));
    return load(all).halves_swapped();
  }
  template <typename Half>
  static Words interleave(const Half *first, const Half *second, int n) {
    const Words high = widened(first, n);
    if (second == nullptr) return {_mm256_slli_epi32(high.lo, 16), _mm256_slli_epi32(high.hi, 16)};
    const Words low = widened(second, n);
    return {_mm256_or_si256(_mm256_slli_epi32(high.lo, 16), low.lo),
            _mm256_or_si256(_mm256_slli_epi32(high.hi, 16), low.hi)};
  }
  void store(void *p) const {
    auto *v = static_cast<__m256i *>(p);
    _mm256_storeu_si256(v, lo);
    _mm256_storeu_si256(v + 1, hi);
  }

  Vec as_float() const { return {_mm256_castsi256_ps(lo), _mm256_castsi256_ps(hi)}; }
  Vec first() const {
    const __m256i high = _mm256_set1_epi32(-65536);
    return {_mm256_castsi256_ps(_mm256_and_si256(lo, high)),
            _mm256_castsi256_ps(_mm256_and_si256(hi, high))};
  }
  Vec second() const {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
  }
  Words halves_apart() const {
    const __m256i low = _mm256_set1_epi32(0xffff);
    return {packed(_mm256_srli_epi32(lo, 16), _mm256_srli_epi32(hi, 16)),
            packed(_mm256_and_si256(lo, low), _mm256_and_si256(hi, low))};
  }

 private:
  // Sixteen 32-bit numbers below 65536 as 16-bit ones. The instruction works in 128-bit halves: its
  // quarters come out as 0, 2, 1, 3.
  static __m256i packed(__m256i a, __m256i b) {
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
  }
  Words halves_swapped() const {
    auto swapped = [](__m256i x) {
      return _mm256_or_si256(_mm256_slli_epi32(x, 16), _mm256_srli_epi32(x, 16));
    };
    return {swapped(lo), swapped(hi)};
  }
  template <typename Half>
  static Words widened(const Half *p, int n) {
    Half all[16] = {};
    if (n == 16)
      std::memcpy(all, p, sizeof(all));
    else
      std::memcpy(all, p, static_cast<size_t>(n) * sizeof(Half));
    const auto *v = reinterpret_cast<const __m128i *>(all);
    return {_mm256_cvtepu16_epi32(_mm_loadu_si128(v)),
            _mm256_cvtepu16_epi32(_mm_loadu_si128(v + 1))};
  }
};

// r[i] lane j <-> r[j] lane i, of eight by eight: pairs, quads, then the 128-bit halves.
inline void transpose_eight(__m256i (&r)[8]) {
  __m256i t[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm256_permute2x128_si256(r[i], r[i + 4], 0x20);
    t[i + 4] = _mm256_permute2x128_si256(r[i], r[i + 4], 0x31);
  }
  for (int i = 0; i < 8; ++i) r[i] = t[i];
}

// Four squares of eight; those beside the diagonal change places.
inline void transpose(Words (&x)[16]) {
  __m256i a[8], b[8], c[8], d[8];
  for (int i = 0; i < 8; ++i) {
    a[i] = x[i].lo;
    b[i] = x[i].hi;
  }
  transpose_eight(a);
  transpose_eight(b);
  for (int i = 0; i < 8; ++i) {
    c[i] = x[i + 8].lo;
    d[i] = x[i + 8].hi;
  }
  transpose_eight(c);
  transpose_eight(d);
  for (int i = 0; i < 8; ++i) {
    x[i] = {a[i], c[i]};
    x[i + 8] = {b[i], d[i]};
  }
}

}  // namespace BI_ISA
}  // namespace bi

#endif
