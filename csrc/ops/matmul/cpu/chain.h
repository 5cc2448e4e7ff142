// SPDX-License-Identifier: Apache-2.0
//
// For tests: the numeric contract of matmul (../README.md) as a scalar loop. Nothing here is shared
// with the kernels.
#ifndef BI_MATMUL_CHAIN_H
#define BI_MATMUL_CHAIN_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "testing.h"

namespace chain {

inline float flushed(float f) {
  return std::fpclassify(f) == FP_SUBNORMAL ? std::copysign(0.0f, f) : f;
}

// [rows, cols] or [batch, rows, cols], any strides.
struct Tensor : bi_test::Tensor {
  using bi_test::Tensor::get;
  using bi_test::Tensor::set;
  using bi_test::Tensor::Tensor;
  int64_t batch() const { return shape.size() == 3 ? shape[0] : 1; }
  int64_t rows() const { return shape[shape.size() - 2]; }
  int64_t cols() const { return shape[shape.size() - 1]; }
  int64_t index(int64_t i, int64_t r, int64_t c) const { return (i * rows() + r) * cols() + c; }
  float get(int64_t i, int64_t r, int64_t c) const { return get(index(i, r, c)); }
  void set(int64_t i, int64_t r, int64_t c, float f) { set(index(i, r, c), f); }
};

// Values of the kind a network has, or (`tiny`) such that products and sums lie around the smallest
// normal fp32; of fp16, values around its own.
struct Values : bi_test::Values {
  using bi_test::Values::Values;
  void fill(Tensor &t, bool tiny = false) {
    const int exponent = t.dtype == BI_FLOAT16 ? -13 : -63;
    for (int64_t i = 0; i < t.count(); ++i) {
      const float value = next();  // apart: compilers evaluate arguments in different orders
      t.set(i, tiny ? std::ldexp(value, exponent - static_cast<int>(below(4))) : value);
    }
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
  if (a.dtype != BI_BFLOAT16) {
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
  Tensor out(a.dtype, shape);
  for (int64_t i = 0; i < out.batch(); ++i)
    for (int64_t r = 0; r < out.rows(); ++r)
      for (int64_t c = 0; c < out.cols(); ++c) {
        float f = sum(a, b, i, r, c, order);
        if (bias != nullptr) f += bias->get(c);
        out.set(i, r, c, f);
      }
  return out;
}

}  // namespace chain

#endif
