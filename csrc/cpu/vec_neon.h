// SPDX-License-Identifier: Apache-2.0
//
// vec.h for AArch64's Advanced SIMD (NEON): four registers.
#ifndef BI_CPU_VEC_NEON_H
#define BI_CPU_VEC_NEON_H

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "dtype.h"

namespace bi {
namespace BI_ISA {

struct Vec {
  float32x4_t v[4];
  static Vec zero() { return set1(0.0f); }
  static Vec set1(float x) {
    const float32x4_t q = vdupq_n_f32(x);
    return {{q, q, q, q}};
  }
  static Vec load(const float *p) {
    return {{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
  }
  static Vec load(const bf16 *p) {
    const uint16x8_t a = halves(p), b = halves(p + 8);
    return {{widen_bf16(vget_low_u16(a)), widen_bf16(vget_high_u16(a)), widen_bf16(vget_low_u16(b)),
             widen_bf16(vget_high_u16(b))}};
  }
  static Vec load(const f16 *p) {
    const uint16x8_t a = halves(p), b = halves(p + 8);
    return {{widen_f16(vget_low_u16(a)), widen_f16(vget_high_u16(a)), widen_f16(vget_low_u16(b)),
             widen_f16(vget_high_u16(b))}};
  }
  template <typename T>
  static Vec load_n(const T *p, int n, float fill = 0.0f) {
    if (n == 16) return load(p);
    T all[16] = {};
    std::memcpy(all, p, static_cast<size_t>(n) * sizeof(T));
    return keep(load(all), 0, n, fill);
  }
  void store(float *p) const {
    for (int q = 0; q < 4; ++q) vst1q_f32(p + 4 * q, v[q]);
  }
  void store(bf16 *p) const {
    for (int q = 0; q < 4; ++q)
      vst1_u16(reinterpret_cast<uint16_t *>(p) + 4 * q, rounded_bf16(v[q]));
  }
  void store(f16 *p) const {
    for (int q = 0; q < 4; ++q)
      vst1_u16(reinterpret_cast<uint16_t *>(p) + 4 * q, rounded_f16(v[q]));
  }
  template <typename T>
  void store_n(T *p, int n) const {
    if (n == 16) return store(p);
    T all[16];
    store(all);
    std::memcpy(p, all, static_cast<size_t>(n) * sizeof(T));
  }

  friend Vec operator+(Vec a, Vec b) {
    return lanes([&](int q) { return vaddq_f32(a.v[q], b.v[q]); });
  }
  friend Vec operator-(Vec a, Vec b) {
    return lanes([&](int q) { return vsubq_f32(a.v[q], b.v[q]); });
  }
  friend Vec operator*(Vec a, Vec b) {
    return lanes([&](int q) { return vmulq_f32(a.v[q], b.v[q]); });
  }
  friend Vec operator/(Vec a, Vec b) {
    return lanes([&](int q) { return vdivq_f32(a.v[q], b.v[q]); });
  }
  static Vec fma(Vec a, Vec b, Vec c) {
    return lanes([&](int q) { return vfmaq_f32(c.v[q], a.v[q], b.v[q]); });
  }
  // Not vmaxq and vminq, which pass NaN on from either operand.
  static Vec max(Vec a, Vec b) {
    return lanes([&](int q) { return vbslq_f32(vcgtq_f32(a.v[q], b.v[q]), a.v[q], b.v[q]); });
  }
  static Vec min(Vec a, Vec b) {
    return lanes([&](int q) { return vbslq_f32(vcltq_f32(a.v[q], b.v[q]), a.v[q], b.v[q]); });
  }
  static Vec sqrt(Vec a) {
    return lanes([&](int q) { return vsqrtq_f32(a.v[q]); });
  }
  static Vec round(Vec a) {
    return lanes([&](int q) { return vrndnq_f32(a.v[q]); });
  }
  // Two multiplications by powers of two, as in vec_portable.h.
  static Vec scale2(Vec x, Vec n) {
    return lanes([&](int q) {
      const int32x4_t e = vcvtnq_s32_f32(n.v[q]);
      const int32x4_t half = vshrq_n_s32(e, 1);
      return vmulq_f32(vmulq_f32(x.v[q], power2(half)), power2(vsubq_s32(e, half)));
    });
  }
  static Vec select_lt(Vec x, Vec y, Vec a, Vec b) {
    return lanes([&](int q) { return vbslq_f32(vcltq_f32(x.v[q], y.v[q]), a.v[q], b.v[q]); });
  }
  static Vec select_nan(Vec x, Vec a, Vec b) {
    return lanes([&](int q) { return vbslq_f32(vceqq_f32(x.v[q], x.v[q]), b.v[q], a.v[q]); });
  }
  static Vec keep(Vec x, int begin, int end, float fill) {
    static constexpr int32_t kIndex[4] = {0, 1, 2, 3};
    const float32x4_t f = vdupq_n_f32(fill);
    return lanes([&](int q) {
      const int32x4_t i = vaddq_s32(vld1q_s32(kIndex), vdupq_n_s32(4 * q));
      const uint32x4_t kept =
          vandq_u32(vcgeq_s32(i, vdupq_n_s32(begin)), vcltq_s32(i, vdupq_n_s32(end)));
      return vbslq_f32(kept, x.v[q], f);
    });
  }
  static Vec round_bf16(Vec x) {
    return lanes([&](int q) { return widen_bf16(rounded_bf16(x.v[q])); });
  }
  static Vec round_f16(Vec x) {
    return lanes([&](int q) { return widen_f16(rounded_f16(x.v[q])); });
  }
  float first() const { return vgetq_lane_f32(v[0], 0); }
  float largest() const {
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(v[0], v[1]), vmaxq_f32(v[2], v[3])));
  }

 private:
  template <typename F>
  static Vec lanes(F &&f) {
    return {{f(0), f(1), f(2), f(3)}};
  }
  static uint16x8_t halves(const void *p) { return vld1q_u16(static_cast<const uint16_t *>(p)); }
  static float32x4_t widen_bf16(uint16x4_t x) { return vreinterpretq_f32_u32(vshll_n_u16(x, 16)); }
  static float32x4_t widen_f16(uint16x4_t x) { return vcvt_f32_f16(vreinterpret_f16_u16(x)); }
  static float32x4_t power2(int32x4_t e) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(e, vdupq_n_s32(127)), 23));
  }
  // The integer steps of dtype.h's to_bf16.
  static uint16x4_t rounded_bf16(float32x4_t x) {
    const uint32x4_t u = vreinterpretq_u32_f32(x);
    const uint32x4_t high = vshrq_n_u32(u, 16);
    const uint32x4_t lsb = vandq_u32(high, vdupq_n_u32(1));
    const uint32x4_t r = vshrq_n_u32(vaddq_u32(u, vaddq_u32(lsb, vdupq_n_u32(0x7fff))), 16);
    return vmovn_u32(vbslq_u32(vceqq_f32(x, x), r, vorrq_u32(high, vdupq_n_u32(0x40))));
  }
  static uint16x4_t rounded_f16(float32x4_t x) { return vreinterpret_u16_f16(vcvt_f16_f32(x)); }
};

}  // namespace BI_ISA
}  // namespace bi

#endif
