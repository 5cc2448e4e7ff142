// SPDX-License-Identifier: Apache-2.0
//
// The element types, by value: what they can hold and what rounding to them does. Written with
// ldexp and nearbyint, so that it shares nothing with the kernels' conversions of bits.
#ifndef BI_FUZZ_FORMAT_H
#define BI_FUZZ_FORMAT_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "batch_invariant.h"

namespace bi_fuzz {

struct Format {
  int digits;    // of the significand, the hidden one included
  int smallest;  // exponent of the smallest subnormal number
  int largest;   // numbers are below 2^largest

  double unit() const { return std::ldexp(1.0, -digits); }
  double tiny() const { return std::ldexp(1.0, smallest); }
  double normal() const { return std::ldexp(1.0, smallest + digits - 1); }
  // The first number that rounds to infinity: half a step above the largest finite one.
  double overflow() const { return std::ldexp(1.0 - std::ldexp(1.0, -digits - 1), largest); }
};

constexpr Format kFloat32 = {24, -149, 128};
constexpr Format kBfloat16 = {8, -133, 128};
constexpr Format kFloat16 = {11, -24, 16};

inline Format format_of(int32_t dtype) {
  return dtype == BI_FLOAT32 ? kFloat32 : dtype == BI_BFLOAT16 ? kBfloat16 : kFloat16;
}

inline bool is_integer(int32_t dtype) { return dtype == BI_INT32 || dtype == BI_INT64; }

inline int64_t bytes_of(int32_t dtype) {
  return dtype == BI_INT64 ? 8 : dtype == BI_BFLOAT16 || dtype == BI_FLOAT16 ? 2 : 4;
}

// Nearest number of the format, ties to even.
inline double round_to(const Format &format, double x) {
  if (!std::isfinite(x) || x == 0.0) return x;
  if (std::fabs(x) >= format.overflow()) return std::copysign(HUGE_VAL, x);
  int exponent;
  std::frexp(x, &exponent);
  const int last = std::max(exponent - format.digits, format.smallest);
  return std::ldexp(std::nearbyint(std::ldexp(x, -last)), last);
}

inline double read_element(int32_t dtype, const void *at) {
  if (dtype == BI_FLOAT32) {
    float f;
    std::memcpy(&f, at, sizeof(f));
    return f;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  const Format format = format_of(dtype);
  const int fraction = bits & ((1 << (format.digits - 1)) - 1);
  const int exponent = (bits & 0x7fff) >> (format.digits - 1);
  const int special = (1 << (16 - format.digits)) - 1;
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == special) return fraction != 0 ? NAN : sign * HUGE_VAL;
  const int hidden = exponent > 0 ? 1 << (format.digits - 1) : 0;
  return sign * std::ldexp(fraction + hidden, format.smallest + std::max(exponent, 1) - 1);
}

// `x` is a number of the format, an infinity or NaN.
inline void write_element(int32_t dtype, void *at, double x) {
  if (dtype == BI_FLOAT32) {
    const float f = static_cast<float>(x);
    std::memcpy(at, &f, sizeof(f));
    return;
  }
  const Format format = format_of(dtype);
  const int special = (1 << (16 - format.digits)) - 1;
  const int shift = format.digits - 1;
  int bits = 0;
  if (std::isnan(x)) {
    bits = special << shift | 1 << (shift - 1);
  } else if (std::isinf(x)) {
    bits = special << shift;
  } else if (x != 0.0) {
    int exponent;
    std::frexp(x, &exponent);
    const int last = std::max(exponent - format.digits, format.smallest);
    const int digits = static_cast<int>(std::ldexp(std::fabs(x), -last));
    bits = digits >> shift == 0 ? digits : ((last - format.smallest) << shift) + digits;
  }
  const auto word = static_cast<uint16_t>(bits | (std::signbit(x) ? 0x8000 : 0));
  std::memcpy(at, &word, sizeof(word));
}

}  // namespace bi_fuzz

#endif
