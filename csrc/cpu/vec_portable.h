// SPDX-License-Identifier: Apache-2.0
//
// vec.h in GCC's and Clang's vector extensions, lowered to whatever the baseline has.
#ifndef BI_CPU_VEC_PORTABLE_H
#define BI_CPU_VEC_PORTABLE_H

#include <cmath>
#include <cstdint>
#include <cstring>

#include "dtype.h"

namespace bi {
namespace BI_ISA {

struct Vec {
  typedef float lanes __attribute__((vector_size(64)));
  lanes v;
  static Vec zero() { return {lanes{}}; }
  static Vec set1(float x) {
    Vec r;
    for (int i = 0; i < kLanes; ++i) r.v[i] = x;
    return r;
  }
  static Vec load(const float *p) {
    Vec r;
    std::memcpy(&r.v, p, sizeof(r.v));
    return r;
  }
  static Vec load(const bf16 *p) { return load_n(p, kLanes); }
  static Vec load(const f16 *p) { return load_n(p, kLanes); }
  static Vec load_n(const float *p, int n, float fill = 0.0f) {
    Vec r = set1(fill);
    for (int i = 0; i < n; ++i) r.v[i] = p[i];
    return r;
  }
  static Vec load_n(const bf16 *p, int n, float fill = 0.0f) {
    Vec r = set1(fill);
    for (int i = 0; i < n; ++i) r.v[i] = to_float(p[i]);
    return r;
  }
  static Vec load_n(const f16 *p, int n, float fill = 0.0f) {
    Vec r = set1(fill);
    for (int i = 0; i < n; ++i) r.v[i] = to_float(p[i]);
    return r;
  }
  void store(float *p) const { std::memcpy(p, &v, sizeof(v)); }
  void store(bf16 *p) const { store_n(p, kLanes); }
  void store(f16 *p) const { store_n(p, kLanes); }
  void store_n(float *p, int n) const {
    for (int i = 0; i < n; ++i) p[i] = v[i];
  }
  void store_n(bf16 *p, int n) const {
    for (int i = 0; i < n; ++i) p[i] = to_bf16(v[i]);
  }
  void store_n(f16 *p, int n) const {
    for (int i = 0; i < n; ++i) p[i] = to_f16(v[i]);
  }

  friend Vec operator+(Vec a, Vec b) { return {a.v + b.v}; }
  friend Vec operator-(Vec a, Vec b) { return {a.v - b.v}; }
  friend Vec operator*(Vec a, Vec b) { return {a.v * b.v}; }
  friend Vec operator/(Vec a, Vec b) { return {a.v / b.v}; }
  static Vec fma(Vec a, Vec b, Vec c) {
    for (int i = 0; i < kLanes; ++i) c.v[i] = std::fma(a.v[i], b.v[i], c.v[i]);
    return c;
  }
  static Vec max(Vec a, Vec b) {
    for (int i = 0; i < kLanes; ++i) a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
    return a;
  }
  static Vec min(Vec a, Vec b) {
    for (int i = 0; i < kLanes; ++i) a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
    return a;
  }
  static Vec sqrt(Vec a) {
    for (int i = 0; i < kLanes; ++i) a.v[i] = std::sqrt(a.v[i]);
    return a;
  }
  static Vec round(Vec a) {
    for (int i = 0; i < kLanes; ++i) a.v[i] = std::nearbyint(a.v[i]);
    return a;
  }
  // Two multiplications by powers of two. With |x| >= 1/2 the first is exact, or both together give
  // zero or infinity.
  static Vec scale2(Vec x, Vec n) {
    for (int i = 0; i < kLanes; ++i) {
      const int e = static_cast<int>(std::nearbyint(n.v[i]));
      const int half = e >> 1;
      x.v[i] = x.v[i] * power2(half) * power2(e - half);
    }
    return x;
  }
  static Vec select_lt(Vec x, Vec y, Vec a, Vec b) {
    for (int i = 0; i < kLanes; ++i) b.v[i] = x.v[i] < y.v[i] ? a.v[i] : b.v[i];
    return b;
  }
  static Vec select_nan(Vec x, Vec a, Vec b) {
    for (int i = 0; i < kLanes; ++i) b.v[i] = x.v[i] != x.v[i] ? a.v[i] : b.v[i];
    return b;
  }
  static Vec keep(Vec x, int begin, int end, float fill) {
    for (int i = 0; i < kLanes; ++i) x.v[i] = i >= begin && i < end ? x.v[i] : fill;
    return x;
  }
  static Vec round_bf16(Vec x) {
    for (int i = 0; i < kLanes; ++i) x.v[i] = to_float(bi::to_bf16(x.v[i]));
    return x;
  }
  static Vec round_f16(Vec x) {
    for (int i = 0; i < kLanes; ++i) x.v[i] = to_float(bi::to_f16(x.v[i]));
    return x;
  }
  float first() const { return v[0]; }
  float largest() const {
    float m = v[0];
    for (int i = 1; i < kLanes; ++i) m = v[i] > m ? v[i] : m;
    return m;
  }

 private:
  static float power2(int e) {
    const uint32_t u = static_cast<uint32_t>(e + 127) << 23;
    float f;
    std::memcpy(&f, &u, sizeof(f));
    return f;
  }
};

}  // namespace BI_ISA
}  // namespace bi

#endif
