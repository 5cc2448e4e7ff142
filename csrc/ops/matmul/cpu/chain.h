// SPDX-License-Identifier: Apache-2.0
//
// For tests: the numeric contract of matmul (../README.md) as a scalar loop, and tensors to try it
// on. Nothing here is shared with the kernels.
#ifndef BI_MATMUL_CHAIN_H
#define BI_MATMUL_CHAIN_H

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "batch_invariant.h"

namespace chain {

inline float bits_to_float(uint32_t u) {
  float f;
  std::memcpy(&f, &u, sizeof(f));
  return f;
}
inline uint32_t float_to_bits(float f) {
  uint32_t u;
  std::memcpy(&u, &f, sizeof(u));
  return u;
}
inline float flushed(float f) {
  return std::fpclassify(f) == FP_SUBNORMAL ? std::copysign(0.0f, f) : f;
}
inline uint16_t round_to_bf16(float f) {
  const uint32_t u = float_to_bits(f);
  if (std::isnan(f)) return static_cast<uint16_t>(u >> 16 | 0x40);
  const uint64_t rest = u & 0xffff, up = u >> 16;
  return static_cast<uint16_t>(up + (rest > 0x8000 || (rest == 0x8000 && up % 2 == 1)));
}

// Elements of one type, held as their bits.
struct Buffer {
  int32_t dtype = BI_FLOAT32;
  std::vector<uint32_t> f32;
  std::vector<uint16_t> b16;

  Buffer(int32_t type, int64_t count) : dtype(type) {
    if (type == BI_FLOAT32)
      f32.resize(static_cast<size_t>(count));
    else
      b16.resize(static_cast<size_t>(count));
  }
  void *data() { return dtype == BI_FLOAT32 ? static_cast<void *>(f32.data()) : b16.data(); }
  int64_t count() const { return static_cast<int64_t>(f32.size() + b16.size()); }
  float get(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    return bits_to_float(dtype == BI_FLOAT32 ? f32[at] : static_cast<uint32_t>(b16[at]) << 16);
  }
  void set(int64_t i, float f) {
    const auto at = static_cast<size_t>(i);
    if (dtype == BI_FLOAT32)
      f32[at] = float_to_bits(f);
    else
      b16[at] = round_to_bf16(f);
  }
};

// A view of a buffer of its own: [rows, cols] or [batch, rows, cols], any strides.
struct Tensor {
  Buffer buffer;
  std::vector<int64_t> shape, stride;

  Tensor(int32_t dtype, std::vector<int64_t> shape_, std::vector<int64_t> stride_)
      : buffer(dtype, room(shape_, stride_)), shape(shape_), stride(stride_) {}
  // Row-major.
  Tensor(int32_t dtype, const std::vector<int64_t> &shape_)
      : Tensor(dtype, shape_, row_major(shape_)) {}

  static std::vector<int64_t> row_major(const std::vector<int64_t> &shape) {
    std::vector<int64_t> stride(shape.size());
    int64_t step = 1;
    for (size_t d = shape.size(); d-- > 0; step *= shape[d]) stride[d] = step;
    return stride;
  }
  static int64_t room(const std::vector<int64_t> &shape, const std::vector<int64_t> &stride) {
    int64_t last = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == 0) return 0;
      last += (shape[d] - 1) * stride[d];
    }
    return last + 1;
  }
  bi_tensor view() {
    return {buffer.data(), shape.data(), stride.data(), static_cast<int32_t>(shape.size()),
            buffer.dtype};
  }
  int64_t at(int64_t i, int64_t r, int64_t c) const {
    const size_t nd = shape.size();
    return (nd == 3 ? i * stride[0] : 0) + r * stride[nd - 2] + c * stride[nd - 1];
  }
  float get(int64_t i, int64_t r, int64_t c) const { return buffer.get(at(i, r, c)); }
  void set(int64_t i, int64_t r, int64_t c, float f) { buffer.set(at(i, r, c), f); }
  int64_t batch() const { return shape.size() == 3 ? shape[0] : 1; }
  int64_t rows() const { return shape[shape.size() - 2]; }
  int64_t cols() const { return shape[shape.size() - 1]; }
};

// Values of the kind a network has, or (`tiny`) products and sums around the smallest normal fp32.
struct Values {
  std::mt19937 engine;
  explicit Values(uint32_t seed) : engine(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine() % static_cast<uint32_t>(n)); }
  float normal_like() {
    float sum = 0;
    for (int i = 0; i < 4; ++i) sum += static_cast<float>(engine() >> 8) * 0x1p-24f - 0.5f;
    return sum;
  }
  float value(bool tiny) {
    return tiny ? std::ldexp(normal_like(), -63 - (int)below(4)) : normal_like();
  }
  void fill(Tensor &t, bool tiny = false) {
    for (int64_t i = 0; i < t.buffer.count(); ++i) t.buffer.set(i, value(tiny));
  }
};

// The orders of bf16; fp32 and fp16 have one chain everywhere.
enum class Order { chain, flushed_pairs, tiles };

inline Order order_of_library() {
  const std::string isa = bi_cpu_isa();
  if (isa == "amx" || isa == "amx_model") return Order::tiles;
  return isa == "avx512_bf16" ? Order::flushed_pairs : Order::chain;
}

// out[i, r, c] before the bias.
inline float sum(const Tensor &a, const Tensor &b, int64_t i, int64_t r, int64_t c, Order order) {
  const int64_t k = a.cols();
  if (a.buffer.dtype != BI_BFLOAT16) {
    float acc = 0;
    for (int64_t j = 0; j < k; ++j) acc = std::fma(a.get(i, r, j), b.get(i, j, c), acc);
    return acc;
  }
  // Both operands are completed by zeros; what subnormals become is the order's matter.
  auto left = [&](int64_t j) { return j < k ? a.get(i, r, j) : 0.0f; };
  auto right = [&](int64_t j) { return j < k ? b.get(i, j, c) : 0.0f; };
  auto flushed_fma = [&](int64_t j, float acc) {
    return flushed(std::fma(flushed(left(j)), flushed(right(j)), acc));
  };
  float acc = 0;
  if (order == Order::tiles) {
    for (int64_t first = 0; first < k; first += 32) {
      float even = 0, odd = 0;
      for (int64_t j = first; j < first + 32; j += 2) {
        even = flushed_fma(j, even);
        odd = flushed_fma(j + 1, odd);
      }
      acc = flushed(acc + flushed(even + odd));
    }
    return acc;
  }
  for (int64_t j = 0; j < (k + 1) / 2 * 2; ++j)
    acc = order == Order::chain ? std::fma(left(j), right(j), acc) : flushed_fma(j, acc);
  return acc;
}

inline Tensor reference(const Tensor &a, const Tensor &b, const Tensor *bias, Order order) {
  std::vector<int64_t> shape = a.shape;
  shape.back() = b.cols();
  Tensor out(a.buffer.dtype, shape);
  for (int64_t i = 0; i < out.batch(); ++i)
    for (int64_t r = 0; r < out.rows(); ++r)
      for (int64_t c = 0; c < out.cols(); ++c) {
        float f = sum(a, b, i, r, c, order);
        if (bias != nullptr) f += bias->buffer.get(c * bias->stride[0]);
        out.set(i, r, c, f);
      }
  return out;
}

// ---- reporting --------------------------------------------------------------------------------

inline int &failures() {
  static int count = 0;
  return count;
}
inline void expect(bool condition, const std::string &what) {
  if (condition) return;
  std::printf("FAILED: %s (bi_last_error: '%s')\n", what.c_str(), bi_last_error());
  ++failures();
}

// Bit for bit; two NaNs count as equal, whatever their payload.
inline int64_t differing(const Tensor &x, const Tensor &y) {
  int64_t count = x.shape != y.shape;
  for (int64_t i = 0; count == 0 && i < x.batch(); ++i)
    for (int64_t r = 0; r < x.rows(); ++r)
      for (int64_t c = 0; c < x.cols(); ++c) {
        const float p = x.get(i, r, c), q = y.get(i, r, c);
        count += float_to_bits(p) != float_to_bits(q) && !(std::isnan(p) && std::isnan(q));
      }
  return count;
}
inline void expect_same(const Tensor &x, const Tensor &y, const std::string &what) {
  const int64_t count = differing(x, y);
  expect(count == 0, what + ": " + std::to_string(count) + " elements differ");
}
inline void expect_ok(bi_status status, const std::string &what) {
  expect(status == BI_OK, what + ": status " + std::to_string(status));
}
// The call fails with `status` and a message that begins with the argument's name.
inline void expect_error(bi_status found, bi_status status, const char *argument) {
  const std::string message = bi_last_error();
  expect(found == status && message.rfind(argument, 0) == 0,
         std::string("expected an error that names ") + argument + ", found status " +
             std::to_string(found));
}

// ctest reads 77 as "this machine lacks the instruction set". Elsewhere an invalid choice is an
// error.
inline int finish(void (*tests)()) {
  if (std::strcmp(bi_cpu_isa(), "invalid") == 0) {
    std::printf("skipped: BI_CPU_ISA=%s is not run by this machine\n", std::getenv("BI_CPU_ISA"));
    return 77;
  }
  tests();
  std::printf("%s: %s\n", bi_cpu_isa(), failures() == 0 ? "ok" : "FAILED");
  return failures() == 0 ? 0 : 1;
}

}  // namespace chain

#endif
