// SPDX-License-Identifier: Apache-2.0
//
// For the operators' tests: strided tensors of made-up values, and comparison of bits. Nothing here
// is shared with the kernels.
#ifndef BI_CPU_TESTING_H
#define BI_CPU_TESTING_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "batch_invariant.h"

namespace bi_test {

constexpr double kUnit = 0x1p-24;  // half a unit in the last place of 1.0f
constexpr int kThreads[] = {1, 2, 3, 8};
constexpr int32_t kDtypes[] = {BI_FLOAT32, BI_BFLOAT16, BI_FLOAT16};

// The most that rounding to a type changes y by: half a unit in its last place, or half its
// smallest number.
inline double rounding(double y, int32_t dtype) {
  if (dtype == BI_BFLOAT16) return std::max(std::fabs(y) * 0x1p-8, 0x1p-134);
  if (dtype == BI_FLOAT16) return std::max(std::fabs(y) * 0x1p-11, 0x1p-25);
  return std::max(std::fabs(y) * kUnit, 0x1p-150);
}

inline uint32_t bits(float f) {
  uint32_t u;
  std::memcpy(&u, &f, sizeof(u));
  return std::isnan(f) ? 0x7fc00000u : u;  // payloads of NaN are nobody's promise
}
inline float from_bits(uint32_t u) {
  float f;
  std::memcpy(&f, &u, sizeof(f));
  return f;
}
// Nearest bfloat16, ties to even, as a float; by way of the value, not of the kernels' integers.
inline float round_bf16(float f) {
  if (!std::isfinite(f) || f == 0.0f) return f;
  int e;
  std::frexp(f, &e);
  const int lowest = std::max(e - 8, -133);
  return std::ldexp(std::nearbyint(std::ldexp(f, -lowest)), lowest);
}

// Sign, 5 bits of exponent with bias 15, 10 of fraction; exponent 0: no leading one, 2^-14.
inline float value_of_f16(uint16_t h) {
  const int exponent = h >> 10 & 31, fraction = h & 1023;
  float f;
  if (exponent == 31)
    f = fraction == 0 ? HUGE_VALF : NAN;
  else if (exponent == 0)
    f = std::ldexp(static_cast<float>(fraction), -24);
  else
    f = std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return h >> 15 ? -f : f;
}

// The nearest fp16, ties to the even fraction, found by bisection over the 0x7c00 magnitudes, whose
// values ascend. Infinity stands for 65536, where the next value would be.
inline uint16_t nearest_f16(float f) {
  const auto sign = static_cast<uint16_t>(std::signbit(f) ? 0x8000 : 0);
  const double magnitude = std::fabs(static_cast<double>(f));
  uint16_t low = 0, high = 0x7c00;
  auto value = [](uint16_t h) {
    return h == 0x7c00 ? 65536.0 : static_cast<double>(value_of_f16(h));
  };
  if (magnitude >= 65536.0) return sign | 0x7c00;
  while (high - low > 1) {
    const auto middle = static_cast<uint16_t>((low + high) / 2);
    (value(middle) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - value(low), above = value(high) - magnitude;
  const bool up = below > above || (below == above && low % 2 == 1);
  return sign | (up ? high : low);
}

inline float rounded(float f, int32_t dtype) {
  if (dtype == BI_BFLOAT16) return round_bf16(f);
  if (dtype == BI_FLOAT16 && !std::isnan(f)) return value_of_f16(nearest_f16(f));
  return f;
}

using Shape = std::vector<int64_t>;

// A view of memory of its own, filled with NaN where no element lies. Elements are named by their
// row-major index, whatever the strides are.
struct Tensor {
  int32_t dtype;
  Shape shape, stride;
  std::vector<uint32_t> words;   // of float32
  std::vector<uint16_t> halves;  // of the others

  Tensor(int32_t type, Shape extents) : Tensor(type, extents, row_major(extents)) {}
  Tensor(int32_t type, Shape extents, Shape strides)
      : dtype(type), shape(std::move(extents)), stride(std::move(strides)) {
    int64_t last = 0;
    for (size_t d = 0; d < shape.size(); ++d)
      last += std::max<int64_t>(0, shape[d] - 1) * stride[d];
    if (dtype == BI_FLOAT32)
      words.assign(static_cast<size_t>(last + 1), 0x7fc00000u);
    else
      halves.assign(static_cast<size_t>(last + 1), dtype == BI_FLOAT16 ? 0x7e00 : 0x7fc0);
  }
  static Shape row_major(const Shape &shape) {
    Shape stride(shape.size());
    int64_t step = 1;
    for (size_t d = shape.size(); d-- > 0; step *= shape[d]) stride[d] = step;
    return stride;
  }
  int64_t count() const {
    int64_t n = 1;
    for (int64_t extent : shape) n *= extent;
    return n;
  }
  int64_t offset(int64_t i) const {
    int64_t at = 0;
    for (size_t d = shape.size(); d-- > 0; i /= shape[d]) at += i % shape[d] * stride[d];
    return at;
  }
  // What lies in memory at an offset, be it an element's place or not.
  int64_t room() const { return static_cast<int64_t>(words.size() + halves.size()); }
  float at_offset(int64_t offset) const {
    const auto at = static_cast<size_t>(offset);
    if (dtype == BI_FLOAT32) return from_bits(words[at]);
    return dtype == BI_FLOAT16 ? value_of_f16(halves[at])
                               : from_bits(static_cast<uint32_t>(halves[at]) << 16);
  }
  float get(int64_t i) const { return at_offset(offset(i)); }
  void set(int64_t i, float f) {
    const auto at = static_cast<size_t>(offset(i));
    if (dtype == BI_FLOAT32)
      std::memcpy(&words[at], &f, sizeof(f));
    else if (dtype == BI_FLOAT16)
      halves[at] = std::isnan(f) ? 0x7e00 : nearest_f16(f);
    else
      halves[at] = static_cast<uint16_t>(bits(round_bf16(f)) >> 16);
  }
  bi_tensor view() {
    void *const data = dtype == BI_FLOAT32 ? static_cast<void *>(words.data()) : halves.data();
    return {data, shape.data(), stride.data(), static_cast<int32_t>(shape.size()), dtype};
  }
};

// The same values behind other strides.
inline Tensor laid_out(const Tensor &x, Shape stride) {
  Tensor y(x.dtype, x.shape, std::move(stride));
  for (int64_t i = 0; i < x.count(); ++i) y.set(i, x.get(i));
  return y;
}

struct Values {
  std::mt19937 engine;
  explicit Values(uint32_t seed) : engine(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine() % static_cast<uint32_t>(n)); }
  // Four uniforms: mean 0, variance 1/3, range (-2, 2).
  float next() {
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(engine() >> 8) * 0x1p-24f - 0.5f;
    return sum;
  }
  Tensor tensor(int32_t dtype, const Shape &shape, float scale = 1.0f) {
    Tensor t(dtype, shape);
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, scale * next());
    return t;
  }
};

// ---- what was found -----------------------------------------------------------------------------

inline int &failures() {
  static int count = 0;
  return count;
}
inline void expect(bool condition, const std::string &what) {
  if (condition) return;
  std::fprintf(stderr, "FAILED: %s (bi_last_error: '%s')\n", what.c_str(), bi_last_error());
  ++failures();
}
inline void expect_ok(bi_status status, const std::string &what) {
  expect(status == BI_OK, what + ": status " + std::to_string(status));
}
// The call fails with `status` and a message that begins with the argument's name.
inline void expect_error(bi_status found, bi_status status, const char *argument) {
  expect(found == status && std::string(bi_last_error()).rfind(argument, 0) == 0,
         std::string("expected an error that names ") + argument);
}
inline int64_t differing(const Tensor &x, const Tensor &y) {
  if (x.count() != y.count()) return x.count() + y.count();
  int64_t count = 0;
  for (int64_t i = 0; i < x.count(); ++i) count += bits(x.get(i)) != bits(y.get(i));
  return count;
}
inline void expect_same(const Tensor &x, const Tensor &y, const std::string &what) {
  const int64_t count = differing(x, y);
  expect(count == 0, what + ": " + std::to_string(count) + " elements differ");
}

// FNV-1a over the bits of every result that was recorded: one number to compare between runs under
// different instruction sets.
inline uint64_t &digest() {
  static uint64_t hash = 14695981039346656037u;
  return hash;
}
inline void record(const Tensor &x) {
  for (int64_t i = 0; i < x.count(); ++i)
    digest() = (digest() ^ bits(x.get(i))) * uint64_t{1099511628211u};
}

// Runs the tests and prints the digest, which tests/stage1 compares between instruction sets. ctest
// reads 77 as "this machine lacks the instruction set".
inline int finish(void (*tests)()) {
  const std::string isa = bi_cpu_isa();
  if (isa == "invalid") {
    const char *wanted = std::getenv("BI_CPU_ISA");
    std::printf("skipped: this machine does not run BI_CPU_ISA=%s\n", wanted ? wanted : "");
    return 77;
  }
  tests();
  std::printf("digest %016llx\n%s: %s\n", static_cast<unsigned long long>(digest()), isa.c_str(),
              failures() == 0 ? "ok" : "FAILED");
  return failures() == 0 ? 0 : 1;
}

}  // namespace bi_test

#endif
