// SPDX-License-Identifier: Apache-2.0
//
// vec.h for AVX-512 (F, BW, DQ, VL): one register.
#ifndef BI_CPU_VEC_AVX512_H
#define BI_CPU_VEC_AVX512_H

#include <immintrin.h>

#include "dtype.h"

namespace bi {
namespace BI_ISA {

struct Vec {
  __m512 v;
  static Vec zero() { return {_mm512_setzero_ps()}; }
  static Vec set1(float x) { return {_mm512_set1_ps(x)}; }
  static Vec load(const float *p) { return {_mm512_loadu_ps(p)}; }
  static Vec load(const bf16 *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
  }
  static Vec load(const f16 *p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)))};
  }
  static Vec load_n(const float *p, int n, float fill = 0.0f) {
    return {_mm512_mask_loadu_ps(_mm512_set1_ps(fill), mask(n), p)};
  }
  static Vec load_n(const bf16 *p, int n, float fill = 0.0f) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask(n), p));
    __m512 x = _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
    return {_mm512_mask_mov_ps(_mm512_set1_ps(fill), mask(n), x)};
  }
  static Vec load_n(const f16 *p, int n, float fill = 0.0f) {
    return {
        _mm512_mask_cvtph_ps(_mm512_set1_ps(fill), mask(n), _mm256_maskz_loadu_epi16(mask(n), p))};
  }
  void store(float *p) const { _mm512_storeu_ps(p, v); }
  void store(bf16 *p) const { _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), to_bf16()); }
  void store(f16 *p) const { _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), to_f16()); }
  void store_n(float *p, int n) const { _mm512_mask_storeu_ps(p, mask(n), v); }
  void store_n(bf16 *p, int n) const { _mm256_mask_storeu_epi16(p, mask(n), to_bf16()); }
  void store_n(f16 *p, int n) const { _mm256_mask_storeu_epi16(p, mask(n), to_f16()); }

  friend Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
  friend Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
  static Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  static Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
  static Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
  static Vec sqrt(Vec a) { return {_mm512_sqrt_ps(a.v)}; }
  static Vec round(Vec a) {
    return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  static Vec scale2(Vec x, Vec n) { return {_mm512_scalef_ps(x.v, n.v)}; }
  static Vec select_lt(Vec x, Vec y, Vec a, Vec b) {
    return {_mm512_mask_mov_ps(b.v, _mm512_cmp_ps_mask(x.v, y.v, _CMP_LT_OQ), a.v)};
  }
  static Vec select_nan(Vec x, Vec a, Vec b) {
    return {_mm512_mask_mov_ps(b.v, _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q), a.v)};
  }
  static Vec keep(Vec x, int begin, int end, float fill) {
    return {_mm512_mask_mov_ps(_mm512_set1_ps(fill), mask(end) & ~mask(begin), x.v)};
  }
  static Vec round_bf16(Vec x) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x.to_bf16()), 16))};
  }
  static Vec round_f16(Vec x) { return {_mm512_cvtph_ps(x.to_f16())}; }
  float first() const { return _mm512_cvtss_f32(v); }
  float largest() const { return _mm512_reduce_max_ps(v); }

 private:
  static __mmask16 mask(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
  // The integer steps of dtype.h's to_bf16, on sixteen lanes.
  __m256i to_bf16() const {
    __m512i u = _mm512_castps_si512(v);
    __m512i lsb = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(u, _mm512_add_epi32(lsb, _mm512_set1_epi32(0x7fff)));
    r = _mm512_srli_epi32(r, 16);
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(r, nan, quiet));
  }
  __m256i to_f16() const {
    return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

}  // namespace BI_ISA
}  // namespace bi

#endif
