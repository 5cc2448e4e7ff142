// SPDX-License-Identifier: Apache-2.0
//
// Sixteen rows turned into columns, widened to fp32 on the way.
#ifndef BI_CPU_TRANSPOSE_H
#define BI_CPU_TRANSPOSE_H

#include <cstdint>

#include "vec.h"

namespace bi {
namespace BI_ISA {

#if defined(BI_VEC_AVX512)

// r[i] lane j <-> r[j] lane i, for 32-bit lanes: pairs, quads, then 128-bit quarters.
inline void transpose_lanes(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

// to[d * stride + l] = rows[l][d] for 0 <= d < dims, 0 <= l < 16.
inline void transpose_rows(const float *const *rows, int64_t dims, float *to, int64_t stride) {
  for (int64_t d = 0; d < dims; d += 16) {
    const int count = static_cast<int>(dims - d < 16 ? dims - d : 16);
    const __mmask16 mask = static_cast<__mmask16>((1u << count) - 1u);
    __m512i r[16];
    for (int l = 0; l < 16; ++l) r[l] = _mm512_maskz_loadu_epi32(mask, rows[l] + d);
    transpose_lanes(r);
    if (count == 16) {
      for (int j = 0; j < 16; ++j) _mm512_storeu_si512(to + (d + j) * stride, r[j]);
    } else {
      for (int j = 0; j < count; ++j) _mm512_storeu_si512(to + (d + j) * stride, r[j]);
    }
  }
}

// Each lane's lower element, or its upper one, widened.
inline __m512 lower(__m512i pairs, bf16) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
inline __m512 upper(__m512i pairs, bf16) {
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-65536)));
}
inline __m512 lower(__m512i pairs, f16) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(pairs)); }
inline __m512 upper(__m512i pairs, f16) { return lower(_mm512_srli_epi32(pairs, 16), f16{}); }

// A pair of 16-bit elements travels as one 32-bit lane and is widened at the end.
template <typename T>
inline void transpose_rows(const T *const *rows, int64_t dims, float *to, int64_t stride) {
  for (int64_t d = 0; d < dims; d += 32) {
    const int count = static_cast<int>(dims - d < 32 ? dims - d : 32);
    const __mmask32 mask = static_cast<__mmask32>((uint64_t{1} << count) - 1u);
    __m512i r[16];
    for (int l = 0; l < 16; ++l) r[l] = _mm512_maskz_loadu_epi16(mask, rows[l] + d);
    transpose_lanes(r);
    if (count == 32) {
      for (int j = 0; j < 16; ++j) {
        _mm512_storeu_ps(to + (d + 2 * j) * stride, lower(r[j], T{}));
        _mm512_storeu_ps(to + (d + 2 * j + 1) * stride, upper(r[j], T{}));
      }
    } else {
      for (int j = 0; 2 * j < count; ++j) {
        _mm512_storeu_ps(to + (d + 2 * j) * stride, lower(r[j], T{}));
        if (2 * j + 1 < count) _mm512_storeu_ps(to + (d + 2 * j + 1) * stride, upper(r[j], T{}));
      }
    }
  }
}

#else

template <typename T>
inline void transpose_rows(const T *const *rows, int64_t dims, float *to, int64_t stride) {
  float wide[16][kLanes];
  for (int64_t d = 0; d < dims; d += kLanes) {
    const int count = static_cast<int>(dims - d < kLanes ? dims - d : kLanes);
    for (int l = 0; l < 16; ++l)
      (count == kLanes ? Vec::load(rows[l] + d) : Vec::load_n(rows[l] + d, count)).store(wide[l]);
    for (int j = 0; j < count; ++j)
      for (int l = 0; l < 16; ++l) to[(d + j) * stride + l] = wide[l][j];
  }
}

#endif

}  // namespace BI_ISA
}  // namespace bi

#endif
