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

static inline void store_float(float *p, float f) { *p = f; }
static inline void store_float(bf16 *p, float f) { *p = to_bf16(f); }

template <typename T>
static inline T from_float(float f) {
  T t;
  store_float(&t, f);
  return t;
}

}  // namespace bi

#endif
