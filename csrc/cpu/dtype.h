// SPDX-License-Identifier: Apache-2.0
//
// Storage types narrower than fp32 and their exact or correctly rounded conversions.
// The functions are `static`: kernels are compiled for several instruction sets, and a function
// shared by the linker could be the one this machine does not run.
#ifndef BI_CPU_DTYPE_H
#define BI_CPU_DTYPE_H

#include <cstdint>
#include <cstring>

namespace bi {

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

static inline float to_float(float x) { return x; }

static inline float to_float(bf16 x) {
  const uint32_t u = static_cast<uint32_t>(x.bits) << 16;
  float f;
  std::memcpy(&f, &u, sizeof(f));
  return f;
}

// Round to nearest, ties to even; NaN stays (quiet) NaN.
static inline bf16 to_bf16(float f) {
  uint32_t u;
  std::memcpy(&u, &f, sizeof(u));
  if (f != f) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

// Both directions of fp16 give what the conversion instructions of x86 (F16C) and AArch64 give, NaN
// included (quieted, with the leading bits of its payload), whatever the caller's flush-to-zero
// mode is: a subnormal fp16 is a normal fp32, and no fp32 that such a mode flushes is one ulp of
// fp16.
static inline float to_float(f16 x) {
  const uint32_t magnitude = x.bits & 0x7fffu;
  uint32_t u;
  if (magnitude < 0x0400u) {  // zero or subnormal: so many units of 2^-24
    const float f = static_cast<float>(magnitude) * 0x1p-24f;
    std::memcpy(&u, &f, sizeof(u));
  } else {
    u = (magnitude << 13) + (112u << 23);        // the exponent's bias: 15 -> 127
    if (magnitude >= 0x7c00u) u |= 0x7f800000u;  // infinity
    if (magnitude > 0x7c00u) u |= 0x00400000u;   // NaN
  }
  u |= static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  float f;
  std::memcpy(&f, &u, sizeof(f));
  return f;
}

// Round to nearest, ties to even; from 65520 on: infinity; NaN stays (quiet) NaN.
static inline f16 to_f16(float f) {
  uint32_t u;
  std::memcpy(&u, &f, sizeof(u));
  const uint32_t sign = u >> 16 & 0x8000u;
  const uint32_t magnitude = u & 0x7fffffffu;
  uint32_t h;
  if (magnitude > 0x7f800000u) {
    h = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {  // 65536 and beyond
    h = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: units of 2^-24, as those of [1/2, 1) are
    float x;
    std::memcpy(&x, &magnitude, sizeof(x));
    x += 0.5f;
    std::memcpy(&h, &x, sizeof(h));
    h -= 0x3f000000u;
  } else {
    h = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  }
  return {static_cast<uint16_t>(sign | h)};
}

static inline void store_float(float *p, float f) { *p = f; }
static inline void store_float(bf16 *p, float f) { *p = to_bf16(f); }
static inline void store_float(f16 *p, float f) { *p = to_f16(f); }

template <typename T>
static inline T from_float(float f) {
  T t;
  store_float(&t, f);
  return t;
}

}  // namespace bi

#endif
