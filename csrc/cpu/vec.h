// SPDX-License-Identifier: Apache-2.0
//
// Sixteen fp32 lanes, for the instruction set this translation unit is compiled for.
//
// Kernels are written once, against `Vec`, and compiled once for each instruction set into a
// namespace of its own (BI_ISA). Every operation below is defined lane by lane by IEEE 754 with
// round-to-nearest, fused multiply-add included, so all instruction sets give the same bits. What
// must not be used in a kernel is anything whose result IEEE does not fix: rsqrt and rcp
// approximations, libm functions, a compiler's own contraction (-ffp-contract=off is set).
#ifndef BI_CPU_VEC_H
#define BI_CPU_VEC_H

#include <cmath>
#include <cstdint>
#include <cstring>

#include "dtype.h"

#if BI_ISA_LEVEL >= 1
#include <immintrin.h>
#endif

namespace bi {
namespace BI_ISA {

constexpr int kLanes = 16;

#if BI_ISA_LEVEL >= 1  // AVX-512 F, BW, DQ, VL

struct Vec {
  __m512 v;
  static Vec zero() { return {_mm512_setzero_ps()}; }
  static Vec set1(float x) { return {_mm512_set1_ps(x)}; }
  static Vec load(const float *p) { return {_mm512_loadu_ps(p)}; }
  static Vec load(const bf16 *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
  }
  // The first n lanes (0 <= n <= 16); the others are `fill`, and their memory is not touched.
  static Vec load_n(const float *p, int n, float fill = 0.0f) {
    return {_mm512_mask_loadu_ps(_mm512_set1_ps(fill), mask(n), p)};
  }
  static Vec load_n(const bf16 *p, int n, float fill = 0.0f) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask(n), p));
    __m512 x = _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
    return {_mm512_mask_mov_ps(_mm512_set1_ps(fill), mask(n), x)};
  }
  void store(float *p) const { _mm512_storeu_ps(p, v); }
  void store(bf16 *p) const { _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), to_bf16()); }
  void store_n(float *p, int n) const { _mm512_mask_storeu_ps(p, mask(n), v); }
  void store_n(bf16 *p, int n) const { _mm256_mask_storeu_epi16(p, mask(n), to_bf16()); }

  friend Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
  friend Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
  // a * b + c, rounded once.
  static Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  // a > b ? a : b, lane by lane: b where either is NaN.
  static Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
  static Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
  static Vec sqrt(Vec a) { return {_mm512_sqrt_ps(a.v)}; }
  // Nearest integer, ties to even.
  static Vec round(Vec a) {
    return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  // x * 2^n for integral n in [-252, 254], rounded once.
  static Vec scale2(Vec x, Vec n) { return {_mm512_scalef_ps(x.v, n.v)}; }
  // x < y ? a : b, lane by lane; a comparison with NaN is false.
  static Vec select_lt(Vec x, Vec y, Vec a, Vec b) {
    return {_mm512_mask_mov_ps(b.v, _mm512_cmp_ps_mask(x.v, y.v, _CMP_LT_OQ), a.v)};
  }
  static Vec select_nan(Vec x, Vec a, Vec b) {
    return {_mm512_mask_mov_ps(b.v, _mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q), a.v)};
  }
  // The lanes from `begin` on and before `end` (0 <= begin, end <= 16), `fill` elsewhere.
  static Vec keep(Vec x, int begin, int end, float fill) {
    return {_mm512_mask_mov_ps(_mm512_set1_ps(fill), mask(end) & ~mask(begin), x.v)};
  }
  // Each lane rounded to bf16 and back.
  static Vec round_bf16(Vec x) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x.to_bf16()), 16))};
  }
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
};

#else  // portable: GCC's and Clang's vector extensions, lowered to whatever the baseline has

struct Vec {
  typedef float lanes __attribute__((vector_size(64)));
  lanes v;
  static Vec zero() { return {lanes{}}; }
  static Vec set1(float x) {
    Vec r;
    for (int i = 0; i < kLanes; ++i) r.v[i] = x;
    return r;
  }
  static Vec load(const float *p) {
    Vec r;
    std::memcpy(&r.v, p, sizeof(r.v));
    return r;
  }
  static Vec load(const bf16 *p) { return load_n(p, kLanes); }
  static Vec load_n(const float *p, int n, float fill = 0.0f) {
    Vec r = set1(fill);
    for (int i = 0; i < n; ++i) r.v[i] = p[i];
    return r;
  }
  static Vec load_n(const bf16 *p, int n, float fill = 0.0f) {
    Vec r = set1(fill);
    for (int i = 0; i < n; ++i) r.v[i] = to_float(p[i]);
    return r;
  }
  void store(float *p) const { std::memcpy(p, &v, sizeof(v)); }
  void store(bf16 *p) const { store_n(p, kLanes); }
  void store_n(float *p, int n) const {
    for (int i = 0; i < n; ++i) p[i] = v[i];
  }
  void store_n(bf16 *p, int n) const {
    for (int i = 0; i < n; ++i) p[i] = to_bf16(v[i]);
  }

  friend Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
  friend Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
  friend Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
  friend Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }
  static Vec fma(Vec a, Vec b, Vec c) {
    for (int i = 0; i < kLanes; ++i) c.v[i] = std::fma(a.v[i], b.v[i], c.v[i]);
    return c;
  }
  static Vec max(Vec a, Vec b) {
    for (int i = 0; i < kLanes; ++i) a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
    return a;
  }
  static Vec min(Vec a, Vec b) {
    for (int i = 0; i < kLanes; ++i) a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
    return a;
  }
  static Vec sqrt(Vec a) {
    for (int i = 0; i < kLanes; ++i) a.v[i] = std::sqrt(a.v[i]);
    return a;
  }
  static Vec round(Vec a) {
    for (int i = 0; i < kLanes; ++i) a.v[i] = std::nearbyint(a.v[i]);
    return a;
  }
  // Two multiplications by powers of two; only the second can round.
  static Vec scale2(Vec x, Vec n) {
    for (int i = 0; i < kLanes; ++i) {
      const int e = static_cast<int>(std::nearbyint(n.v[i]));
      const int half = e >> 1;
      x.v[i] = x.v[i] * power2(half) * power2(e - half);
    }
    return x;
  }
  static Vec select_lt(Vec x, Vec y, Vec a, Vec b) {
    for (int i = 0; i < kLanes; ++i) b.v[i] = x.v[i] < y.v[i] ? a.v[i] : b.v[i];
    return b;
  }
  static Vec select_nan(Vec x, Vec a, Vec b) {
    for (int i = 0; i < kLanes; ++i) b.v[i] = x.v[i] != x.v[i] ? a.v[i] : b.v[i];
    return b;
  }
  static Vec keep(Vec x, int begin, int end, float fill) {
    for (int i = 0; i < kLanes; ++i) x.v[i] = i >= begin && i < end ? x.v[i] : fill;
    return x;
  }
  static Vec round_bf16(Vec x) {
    for (int i = 0; i < kLanes; ++i) x.v[i] = to_float(bi::to_bf16(x.v[i]));
    return x;
  }
  float first() const { return v[0]; }
  float largest() const {
    float m = v[0];
    for (int i = 1; i < kLanes; ++i) m = v[i] > m ? v[i] : m;
    return m;
  }

 private:
  static float power2(int e) {
    const uint32_t u = static_cast<uint32_t>(e + 127) << 23;
    float f;
    std::memcpy(&f, &u, sizeof(f));
    return f;
  }
};

#endif

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
