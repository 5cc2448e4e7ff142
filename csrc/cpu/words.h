// SPDX-License-Identifier: Apache-2.0
//
// Sixteen 32-bit words: the unit in which matrices are moved and packed. A word is one fp32, or two
// neighbouring 16-bit elements of the reduced dimension with the *earlier one in the high half*.
// That is the order in which the hardware's dot product of bf16 pairs adds, so it adds in ascending
// order.
// transpose(): word j of row i becomes word i of row j.
#ifndef BI_CPU_WORDS_H
#define BI_CPU_WORDS_H

#include "transpose.h"
#include "vec.h"

#if defined(BI_VEC_AVX2)
#include "words_avx2.h"
#elif defined(BI_VEC_NEON)
#include "words_neon.h"
#else

namespace bi {
namespace BI_ISA {

#if defined(BI_VEC_AVX512)

struct Words {
  __m512i v;
  static Words zero() { return {_mm512_setzero_si512()}; }
  static Words load(const uint32_t *p) { return {_mm512_loadu_si512(p)}; }
  // n consecutive elements (0 <= n) fill the first words, zeros the rest.
  static Words load_run(const float *p, int64_t n) {
    if (n >= 16) return {_mm512_loadu_si512(p)};
    return {_mm512_maskz_loadu_epi32(static_cast<__mmask16>((1u << n) - 1u), p)};
  }
  template <typename Half>
  static Words load_run(const Half *p, int64_t n) {
    __m512i x = n >= 32 ? _mm512_loadu_si512(p)
                        : _mm512_maskz_loadu_epi16(static_cast<__mmask32>((1ull << n) - 1u), p);
    return {_mm512_rol_epi32(x, 16)};
  }
  // Words (first[i], second[i]) for i < n (0 <= n <= 16), zeros after; `second` may be null: zeros.
  template <typename Half>
  static Words interleave(const Half *first, const Half *second, int n) {
    const __mmask16 m = static_cast<__mmask16>((1u << n) - 1u);
    __m512i hi = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, first));
    __m512i lo = second == nullptr ? _mm512_setzero_si512()
                                   : _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, second));
    return {_mm512_or_si512(_mm512_slli_epi32(hi, 16), lo)};
  }
  void store(uint32_t *p) const { _mm512_storeu_si512(p, v); }

  Vec as_float() const { return {_mm512_castsi512_ps(v)}; }
  Vec first() const {
    return {_mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(-65536)))};
  }
  Vec second() const { return {_mm512_castsi512_ps(_mm512_slli_epi32(v, 16))}; }
  // The sixteen high halves, then the sixteen low ones.
  Words halves_apart() const {
    return {
        _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(_mm512_srli_epi32(v, 16))),
                           _mm512_cvtepi32_epi16(v), 1)};
  }
};

inline void transpose(Words (&x)[16]) {
  __m512i r[16];
  for (int i = 0; i < 16; ++i) r[i] = x[i].v;
  transpose_lanes(r);
  for (int i = 0; i < 16; ++i) x[i].v = r[i];
}

#else

struct Words {
  uint32_t v[16];
  static Words zero() { return {{}}; }
  static Words load(const uint32_t *p) {
    Words r;
    std::memcpy(r.v, p, sizeof(r.v));
    return r;
  }
  static Words load_run(const float *p, int64_t n) {
    Words r = zero();
    std::memcpy(r.v, p, static_cast<size_t>(n < 16 ? n : 16) * sizeof(float));
    return r;
  }
  template <typename Half>
  static Words load_run(const Half *p, int64_t n) {
    Words r = zero();
    for (int64_t i = 0; i < n && i < 32; ++i)
      r.v[i / 2] |= static_cast<uint32_t>(p[i].bits) << (i % 2 == 0 ? 16 : 0);
    return r;
  }
  template <typename Half>
  static Words interleave(const Half *first, const Half *second, int n) {
    Words r = zero();
    for (int i = 0; i < n; ++i) {
      r.v[i] = static_cast<uint32_t>(first[i].bits) << 16;
      if (second != nullptr) r.v[i] |= second[i].bits;
    }
    return r;
  }
  void store(uint32_t *p) const { std::memcpy(p, v, sizeof(v)); }

  Vec as_float() const {
    Vec r;
    std::memcpy(&r.v, v, sizeof(v));
    return r;
  }
  Vec first() const {
    Words r = *this;
    for (auto &w : r.v) w &= 0xffff0000u;
    return r.as_float();
  }
  Vec second() const {
    Words r = *this;
    for (auto &w : r.v) w <<= 16;
    return r.as_float();
  }
  Words halves_apart() const {
    uint16_t halves[32];
    for (int i = 0; i < 16; ++i) {
      halves[i] = static_cast<uint16_t>(v[i] >> 16);
      halves[i + 16] = static_cast<uint16_t>(v[i]);
    }
    Words r;
    std::memcpy(r.v, halves, sizeof(halves));
    return r;
  }
};

inline void transpose(Words (&x)[16]) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < i; ++j) {
      const uint32_t t = x[i].v[j];
      x[i].v[j] = x[j].v[i];
      x[j].v[i] = t;
    }
}

#endif

}  // namespace BI_ISA
}  // namespace bi

#endif
#endif
