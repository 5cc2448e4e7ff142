// SPDX-License-Identifier: Apache-2.0
//
// vec.h for AVX2 with FMA and F16C: two registers.
#ifndef BI_CPU_VEC_AVX2_H
#define BI_CPU_VEC_AVX2_H

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "dtype.h"

namespace bi {
namespace BI_ISA {

// All ones in the first n of eight lanes, of lanes 8 * half and on of sixteen.
inline __m256i lane_mask(int n, int half) {
  static constexpr int32_t kMasks[32] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                                         -1, -1, -1, -1, -1, 0,  0,  0,  0,  0,  0,
                                         0,  0,  0,  0,  0,  0,  0,  0,  0,  0};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(kMasks + 16 - n + 8 * half));
}

struct Vec {
  __m256 lo, hi;
  static Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static Vec set1(float x) {
    const __m256 v = _mm256_set1_ps(x);
    return {v, v};
  }
  static Vec load(const float *p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static Vec load(const bf16 *p) { return {widen_bf16(half_of(p)), widen_bf16(half_of(p + 8))}; }
  static Vec load(const f16 *p) {
    return {_mm256_cvtph_ps(half_of(p)), _mm256_cvtph_ps(half_of(p + 8))};
  }
  static Vec load_n(const float *p, int n, float fill = 0.0f) {
    if (n == 16) return load(p);
    const __m256i first = lane_mask(n, 0), second = lane_mask(n, 1);
    const __m256 f = _mm256_set1_ps(fill);
    return {_mm256_blendv_ps(f, _mm256_maskload_ps(p, first), _mm256_castsi256_ps(first)),
            _mm256_blendv_ps(f, _mm256_maskload_ps(n > 8 ? p + 8 : p, second),
                             _mm256_castsi256_ps(second))};
  }
  static Vec load_n(const bf16 *p, int n, float fill = 0.0f) { return narrow_n(p, n, fill); }
  static Vec load_n(const f16 *p, int n, float fill = 0.0f) { return narrow_n(p, n, fill); }
  void store(float *p) const {
    _mm256_storeu_ps(p, lo);
    _mm256_storeu_ps(p + 8, hi);
  }
  void store(bf16 *p) const { _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), to_bf16()); }
  void store(f16 *p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p), to_f16(lo));
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p + 8), to_f16(hi));
  }
  void store_n(float *p, int n) const {
    if (n == 16) return store(p);
    _mm256_maskstore_ps(p, lane_mask(n, 0), lo);
    _mm256_maskstore_ps(n > 8 ? p + 8 : p, lane_mask(n, 1), hi);
  }
  void store_n(bf16 *p, int n) const { store_narrow_n(p, n); }
  void store_n(f16 *p, int n) const { store_narrow_n(p, n); }

  friend Vec operator+(Vec a, Vec b) {
    return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
  }
  friend Vec operator-(Vec a, Vec b) {
    return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
  }
  friend Vec operator*(Vec a, Vec b) {
    return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
  }
  friend Vec operator/(Vec a, Vec b) {
    return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
  }
  static Vec fma(Vec a, Vec b, Vec c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  static Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
  static Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
  static Vec sqrt(Vec a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
  static Vec round(Vec a) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(a.lo, kNearest), _mm256_round_ps(a.hi, kNearest)};
  }
  // Two multiplications by powers of two, as in vec_portable.h.
  static Vec scale2(Vec x, Vec n) { return {scaled(x.lo, n.lo), scaled(x.hi, n.hi)}; }
  static Vec select_lt(Vec x, Vec y, Vec a, Vec b) {
    return {_mm256_blendv_ps(b.lo, a.lo, _mm256_cmp_ps(x.lo, y.lo, _CMP_LT_OQ)),
            _mm256_blendv_ps(b.hi, a.hi, _mm256_cmp_ps(x.hi, y.hi, _CMP_LT_OQ))};
  }
  static Vec select_nan(Vec x, Vec a, Vec b) {
    return {_mm256_blendv_ps(b.lo, a.lo, _mm256_cmp_ps(x.lo, x.lo, _CMP_UNORD_Q)),
            _mm256_blendv_ps(b.hi, a.hi, _mm256_cmp_ps(x.hi, x.hi, _CMP_UNORD_Q))};
  }
  static Vec keep(Vec x, int begin, int end, float fill) {
    const __m256 f = _mm256_set1_ps(fill);
    auto mask = [&](int half) {
      return _mm256_castsi256_ps(_mm256_andnot_si256(lane_mask(begin, half), lane_mask(end, half)));
    };
    return {_mm256_blendv_ps(f, x.lo, mask(0)), _mm256_blendv_ps(f, x.hi, mask(1))};
  }
  static Vec round_bf16(Vec x) {
    const __m256i narrow = x.to_bf16();
    return {widen_bf16(_mm256_castsi256_si128(narrow)),
            widen_bf16(_mm256_extracti128_si256(narrow, 1))};
  }
  static Vec round_f16(Vec x) {
    return {_mm256_cvtph_ps(to_f16(x.lo)), _mm256_cvtph_ps(to_f16(x.hi))};
  }
  float first() const { return _mm256_cvtss_f32(lo); }
  float largest() const {
    const __m256 eight = _mm256_max_ps(lo, hi);
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
  }

 private:
  static __m128i half_of(const void *p) { return _mm_loadu_si128(static_cast<const __m128i *>(p)); }
  static __m256 widen_bf16(__m128i x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
  }
  template <typename T>
  static Vec narrow_n(const T *p, int n, float fill) {
    if (n == 16) return load(p);
    T all[16] = {};
    std::memcpy(all, p, static_cast<size_t>(n) * sizeof(T));
    return keep(load(all), 0, n, fill);
  }
  template <typename T>
  void store_narrow_n(T *p, int n) const {
    if (n == 16) return store(p);
    T all[16];
    store(all);
    std::memcpy(p, all, static_cast<size_t>(n) * sizeof(T));
  }
  static __m256 scaled(__m256 x, __m256 n) {
    const __m256i e = _mm256_cvtps_epi32(n);
    const __m256i half = _mm256_srai_epi32(e, 1);
    auto power2 = [](__m256i i) {
      return _mm256_castsi256_ps(
          _mm256_slli_epi32(_mm256_add_epi32(i, _mm256_set1_epi32(127)), 23));
    };
    return _mm256_mul_ps(_mm256_mul_ps(x, power2(half)), power2(_mm256_sub_epi32(e, half)));
  }
  // The integer steps of dtype.h's to_bf16; the result in the low halves of eight lanes.
  static __m256i rounded_bf16(__m256 x) {
    const __m256i u = _mm256_castps_si256(x);
    const __m256i high = _mm256_srli_epi32(u, 16);
    const __m256i lsb = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(lsb, _mm256_set1_epi32(0x7fff)));
    r = _mm256_srli_epi32(r, 16);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(r, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
  }
  __m256i to_bf16() const {
    // The pack works in 128-bit halves: its quarters come out as 0, 2, 1, 3.
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded_bf16(lo), rounded_bf16(hi)), 0xd8);
  }
  static __m128i to_f16(__m256 x) {
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

}  // namespace BI_ISA
}  // namespace bi

#endif
