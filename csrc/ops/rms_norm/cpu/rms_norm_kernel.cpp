// SPDX-License-Identifier: Apache-2.0
#include "rms_norm_kernel.h"

#include "float_types.h"
#include "reduce.h"

namespace bi {
namespace BI_ISA {
namespace {

using Operand = RmsNormArgs::Operand;

Vec rounded(Vec x, float) { return x; }
Vec rounded(Vec x, bf16) { return Vec::round_bf16(x); }
Vec rounded(Vec x, f16) { return Vec::round_f16(x); }

// Up to 16 elements of a row with any stride.
template <typename T>
Vec load(const T *row, int64_t i, int64_t stride, int count) {
  if (stride == 1) return count == kLanes ? Vec::load(row + i) : Vec::load_n(row + i, count);
  float lane[kLanes] = {};
  for (int l = 0; l < count; ++l) lane[l] = to_float(row[(i + l) * stride]);
  return Vec::load(lane);
}

template <typename T>
void store(Vec x, T *row, int64_t i, int64_t stride, int count) {
  if (stride == 1) {
    count == kLanes ? x.store(row + i) : x.store_n(row + i, count);
    return;
  }
  float lane[kLanes];
  x.store(lane);
  for (int l = 0; l < count; ++l) store_float(&row[(i + l) * stride], lane[l]);
}

// Calls f(i, count) for each vector of a row of n.
template <typename F>
void each_vector(int64_t n, F &&f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(i, kLanes);
  if (i < n) f(i, static_cast<int>(n - i));
}

float sum_of_squares(const float *x, int64_t n) {
  Sum total;
  for (int64_t b = 0; b < block_count(n); ++b) {
    struct {
      const float *x;
      Vec operator()(Vec acc, int64_t i) const {
        const Vec v = Vec::load(x + i);
        return Vec::fma(v, v, acc);
      }
      Vec operator()(Vec acc, int64_t i, int count) const {
        const Vec v = Vec::load_n(x + i, count);
        return Vec::fma(v, v, acc);
      }
    } term{x + b * kSumBlock};
    total.add(Vec::set1(block_sum(block_length(n, b), term)));
  }
  return total.value().first();
}

// `T`: of the rows; `W`: of the weight, to which what it scales is rounded.
template <typename T, typename W>
void rows(const RmsNormArgs &args, int64_t begin, int64_t end, float *s) {
  const int64_t n = args.length;
  const int64_t *const inner = args.inner;
  for (int64_t r = begin; r < end; ++r) {
    // The row is read whole before `out` is written, which may be the same memory.
    const T *const x = static_cast<const T *>(args.x) + nest_offset(args.outer, Operand::kX, r);
    if (args.residual != nullptr) {
      const T *const residual =
          static_cast<const T *>(args.residual) + nest_offset(args.outer, Operand::kResidual, r);
      T *const sum =
          static_cast<T *>(args.residual_out) + nest_offset(args.outer, Operand::kResidualOut, r);
      each_vector(n, [&](int64_t i, int count) {
        const Vec v = rounded(load(x, i, inner[Operand::kX], count) +
                                  load(residual, i, inner[Operand::kResidual], count),
                              T{});
        v.store_n(s + i, count);
        store(v, sum, i, inner[Operand::kResidualOut], count);
      });
    } else {
      each_vector(n, [&](int64_t i, int count) {
        load(x, i, inner[Operand::kX], count).store_n(s + i, count);
      });
    }
    // IEEE square root and division: each correctly rounded on every instruction set.
    const Vec variance = Vec::set1(sum_of_squares(s, n) / static_cast<float>(n) + args.eps);
    const Vec rstd = Vec::set1(1.0f) / Vec::sqrt(variance);
    if (args.rstd != nullptr) args.rstd[nest_offset(args.outer, Operand::kRstd, r)] = rstd.first();
    T *const out = static_cast<T *>(args.out) + nest_offset(args.outer, Operand::kOut, r);
    each_vector(n, [&](int64_t i, int count) {
      Vec y = Vec::load_n(s + i, count) * rstd;
      if (args.weight != nullptr) {
        y = rounded(y, W{}) * Vec::load_n(args.weight + i, count);
      }
      store(y, out, i, inner[Operand::kOut], count);
    });
  }
}

}  // namespace

void rms_norm_rows(const RmsNormArgs &args, int64_t begin, int64_t end, float *scratch) {
  with_float_type(args.dtype, [&](auto type) {
    using T = decltype(type);
    if (args.weight_dtype == BI_FLOAT32)
      rows<T, float>(args, begin, end, scratch);
    else
      rows<T, T>(args, begin, end, scratch);
  });
}

}  // namespace BI_ISA
}  // namespace bi
