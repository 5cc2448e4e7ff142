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
constexpr int32_t kDtypes[] = {BI_FLOAT32, BI_BFLOAT16};

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
inline float rounded(float f, int32_t dtype) { return dtype == BI_BFLOAT16 ? round_bf16(f) : f; }

using Shape = std::vector<int64_t>;

// A view of memory of its own, filled with NaN where no element lies. Elements are named by their
// row-major index, whatever the strides are.
struct Tensor {
  int32_t dtype;
  Shape shape, stride;
  std::vector<uint32_t> f32;
  std::vector<uint16_t> b16;

  Tensor(int32_t type, Shape extents) : Tensor(type, extents, row_major(extents)) {}
  Tensor(int32_t type, Shape extents, Shape strides)
      : dtype(type), shape(std::move(extents)), stride(std::move(strides)) {
    int64_t last = 0;
    for (size_t d = 0; d < shape.size(); ++d)
      last += std::max<int64_t>(0, shape[d] - 1) * stride[d];
    if (dtype == BI_FLOAT32)
      f32.assign(static_cast<size_t>(last + 1), 0x7fc00000u);
    else
      b16.assign(static_cast<size_t>(last + 1), 0x7fc0u);
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
  float get(int64_t i) const {
    const auto at = static_cast<size_t>(offset(i));
    return from_bits(dtype == BI_FLOAT32 ? f32[at] : static_cast<uint32_t>(b16[at]) << 16);
  }
  void set(int64_t i, float f) {
    const auto at = static_cast<size_t>(offset(i));
    if (dtype == BI_FLOAT32)
      std::memcpy(&f32[at], &f, sizeof(f));
    else
      b16[at] = static_cast<uint16_t>(bits(round_bf16(f)) >> 16);
  }
  bi_tensor view() {
    void *const data = dtype == BI_FLOAT32 ? static_cast<void *>(f32.data()) : b16.data();
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
inline void expect_ok(bi_status status, const char *what) {
  expect(status == BI_OK, std::string(what) + ": status " + std::to_string(status));
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
