// SPDX-License-Identifier: Apache-2.0
//
// words.h for AArch64's Advanced SIMD (NEON): four registers.
#ifndef BI_CPU_WORDS_NEON_H
#define BI_CPU_WORDS_NEON_H

#include <cstring>

#include "vec.h"

namespace bi {
namespace BI_ISA {

struct Words {
  uint32x4_t v[4];
  static Words zero() {
    const uint32x4_t z = vdupq_n_u32(0);
    return {{z, z, z, z}};
  }
  static Words load(const uint32_t *p) {
    return {{vld1q_u32(p), vld1q_u32(p + 4), vld1q_u32(p + 8), vld1q_u32(p + 12)}};
  }
  static Words load_run(const float *p, int64_t n) {
    uint32_t all[16] = {};
    std::memcpy(all, p, static_cast<size_t>(n < 16 ? n : 16) * sizeof(float));
    return load(all);
  }
  template <typename Half>
  static Words load_run(const Half *p, int64_t n) {
    uint16_t all[32] = {};
    std::memcpy(all, p, static_cast<size_t>(n < 32 ? n : 32) * sizeof(Half));
    Words r;
    for (int q = 0; q < 4; ++q)
      r.v[q] = vreinterpretq_u32_u16(vrev32q_u16(vld1q_u16(all + 8 * q)));  // halves swapped
    return r;
  }
  template <typename Half>
  static Words interleave(const Half *first, const Half *second, int n) {
    uint16_t high[16] = {}, low[16] = {};
    std::memcpy(high, first, static_cast<size_t>(n) * sizeof(Half));
    if (second != nullptr) std::memcpy(low, second, static_cast<size_t>(n) * sizeof(Half));
    Words r;
    for (int q = 0; q < 4; ++q)
      r.v[q] = vorrq_u32(vshll_n_u16(vld1_u16(high + 4 * q), 16), vmovl_u16(vld1_u16(low + 4 * q)));
    return r;
  }
  void store(uint32_t *p) const {
    for (int q = 0; q < 4; ++q) vst1q_u32(p + 4 * q, v[q]);
  }

  Vec as_float() const {
    return {{vreinterpretq_f32_u32(v[0]), vreinterpretq_f32_u32(v[1]), vreinterpretq_f32_u32(v[2]),
             vreinterpretq_f32_u32(v[3])}};
  }
  Vec first() const {
    Words r;
    for (int q = 0; q < 4; ++q) r.v[q] = vandq_u32(v[q], vdupq_n_u32(0xffff0000u));
    return r.as_float();
  }
  Vec second() const {
    Words r;
    for (int q = 0; q < 4; ++q) r.v[q] = vshlq_n_u32(v[q], 16);
    return r.as_float();
  }
  Words halves_apart() const {
    Words r;
    for (int q = 0; q < 2; ++q) {
      const uint16x8_t a = vreinterpretq_u16_u32(v[2 * q]);
      const uint16x8_t b = vreinterpretq_u16_u32(v[2 * q + 1]);
      r.v[q] = vreinterpretq_u32_u16(vuzp2q_u16(a, b));
      r.v[q + 2] = vreinterpretq_u32_u16(vuzp1q_u16(a, b));
    }
    return r;
  }
};

// x[i] lane j <-> x[j] lane i, by squares of four.
inline void transpose(Words (&x)[16]) {
  Words t[16];
  for (int i = 0; i < 16; i += 4)
    for (int q = 0; q < 4; ++q) {
      const uint32x4_t a = vtrn1q_u32(x[i].v[q], x[i + 1].v[q]);
      const uint32x4_t b = vtrn2q_u32(x[i].v[q], x[i + 1].v[q]);
      const uint32x4_t c = vtrn1q_u32(x[i + 2].v[q], x[i + 3].v[q]);
      const uint32x4_t d = vtrn2q_u32(x[i + 2].v[q], x[i + 3].v[q]);
      auto low = [](uint32x4_t e, uint32x4_t f) {
        return vreinterpretq_u32_u64(
            vtrn1q_u64(vreinterpretq_u64_u32(e), vreinterpretq_u64_u32(f)));
      };
      auto high = [](uint32x4_t e, uint32x4_t f) {
        return vreinterpretq_u32_u64(
            vtrn2q_u64(vreinterpretq_u64_u32(e), vreinterpretq_u64_u32(f)));
      };
      t[4 * q].v[i / 4] = low(a, c);
      t[4 * q + 1].v[i / 4] = low(b, d);
      t[4 * q + 2].v[i / 4] = high(a, c);
      t[4 * q + 3].v[i / 4] = high(b, d);
    }
  for (int i = 0; i < 16; ++i) x[i] = t[i];
}

}  // namespace BI_ISA
}  // namespace bi

#endif
