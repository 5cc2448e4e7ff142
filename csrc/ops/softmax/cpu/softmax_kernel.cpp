// SPDX-License-Identifier: Apache-2.0
#include "softmax_kernel.h"

#include "exp_log.h"
#include "float_types.h"
#include "reduce.h"

namespace bi {
namespace BI_ISA {
namespace {

constexpr float kInfinity = __builtin_inff();

// The largest of n values; NaN is passed over, it shows up in the sum.
template <typename T>
float max_of(const T *x, int64_t n) {
  Vec m[4];
  for (Vec &v : m) v = Vec::set1(-kInfinity);
  int64_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes)
    for (int v = 0; v < 4; ++v) m[v] = Vec::max(Vec::load(x + i + v * kLanes), m[v]);
  for (; i + kLanes <= n; i += kLanes) m[0] = Vec::max(Vec::load(x + i), m[0]);
  if (i < n) m[1] = Vec::max(Vec::load_n(x + i, static_cast<int>(n - i), -kInfinity), m[1]);
  return Vec::max(Vec::max(m[0], m[1]), Vec::max(m[2], m[3])).largest();
}

// Sum of exp(x - max) over one block.
template <typename T>
float exp_sum(const T *x, int64_t n, float max) {
  struct {
    const T *x;
    Vec max;
    Vec operator()(Vec acc, int64_t i) const { return acc + exp(Vec::load(x + i) - max); }
    Vec operator()(Vec acc, int64_t i, int count) const {
      const Vec e = exp(Vec::load_n(x + i, count) - max);
      return acc + Vec::keep(e, 0, count, 0.0f);
    }
  } term{x, Vec::set1(max)};
  return block_sum(n, term);
}

// One row's last step: its maximum and its sum (log_softmax: the sum's logarithm) are known.
template <bool kLog>
struct Finish {
  Vec max, sum;
  Finish(float row_max, float row_sum)
      : max(Vec::set1(row_max)), sum(Vec::set1(kLog ? log(row_sum) : row_sum)) {}
  Vec operator()(Vec x) const { return kLog ? (x - max) - sum : exp(x - max) / sum; }
};

template <bool kLog, typename T, typename O>
void write(const T *x, O *out, int64_t n, float max, float sum) {
  const Finish<kLog> finish(max, sum);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) finish(Vec::load(x + i)).store(out + i);
  if (i < n) {
    const int left = static_cast<int>(n - i);
    finish(Vec::load_n(x + i, left)).store_n(out + i, left);
  }
}

template <bool kLog, typename T, typename O>
void row(const T *x, O *out, int64_t n) {
  const float max = max_of(x, n);
  Sum total;
  for (int64_t b = 0; b < block_count(n); ++b)
    total.add(Vec::set1(exp_sum(x + b * kSumBlock, block_length(n, b), max)));
  write<kLog>(x, out, n, max, total.value().first());
}

// Calls f(x, out) with pointers of the tensors' types.
template <typename F>
void with_types(const SoftmaxArgs &args, F &&f) {
  with_float_type(args.x_dtype, [&](auto type) {
    using T = decltype(type);
    const auto *const x = static_cast<const T *>(args.x);
    if (args.out_dtype == BI_FLOAT32)
      f(x, static_cast<float *>(args.out));
    else
      f(x, static_cast<T *>(args.out));
  });
}

template <bool kLog, typename T, typename O>
void gathered_rows(const SoftmaxArgs &args, const T *x, O *out, int64_t begin, int64_t end,
                   float *scratch) {
  for (int64_t r = begin; r < end; ++r) {
    const T *from = x + nest_offset(args.outer, 0, r);
    O *to = out + nest_offset(args.outer, 1, r);
    for (int64_t i = 0; i < args.length; ++i) scratch[i] = to_float(from[i * args.x_stride]);
    row<kLog>(scratch, scratch, args.length);
    for (int64_t i = 0; i < args.length; ++i) store_float(&to[i * args.out_stride], scratch[i]);
  }
}

// Thirty-two rows side by side, one per lane; the steps of `row` on each.
template <bool kLog, typename T, typename O>
void columns(const SoftmaxArgs &args, const T *x, O *out, int64_t begin, int64_t end) {
  constexpr int kVecs = kSoftmaxColumns / kLanes;
  const int64_t groups = (args.columns + kSoftmaxColumns - 1) / kSoftmaxColumns;
  const int64_t n = args.length;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t outer = unit / groups;
    const int64_t column = unit % groups * kSoftmaxColumns;
    const T *const from = x + nest_offset(args.outer, 0, outer) + column;
    O *const to = out + nest_offset(args.outer, 1, outer) + column;
    int lanes[kVecs];
    for (int v = 0; v < kVecs; ++v) {
      const int64_t left = args.columns - column - v * kLanes;
      lanes[v] = static_cast<int>(left < 0 ? 0 : left < kLanes ? left : kLanes);
    }
    auto load = [&](int64_t i, int v) {
      return Vec::load_n(from + i * args.x_stride + v * kLanes, lanes[v]);
    };
    Vec max[kVecs];
    Sum total[kVecs];
    for (Vec &m : max) m = Vec::set1(-kInfinity);
    for (int64_t i = 0; i < n; ++i)
      for (int v = 0; v < kVecs; ++v) max[v] = Vec::max(load(i, v), max[v]);
    for (int64_t b = 0; b < block_count(n); ++b) {
      Vec sums[kVecs];
      block_sum_columns<kVecs>(block_length(n, b), sums, [&](Vec *acc, int64_t i) {
        for (int v = 0; v < kVecs; ++v) acc[v] = acc[v] + exp(load(b * kSumBlock + i, v) - max[v]);
      });
      for (int v = 0; v < kVecs; ++v) total[v].add(sums[v]);
    }
    for (int v = 0; v < kVecs; ++v) {
      Vec sum = total[v].value();
      if (kLog) {
        float lane[kLanes];
        sum.store(lane);
        for (float &s : lane) s = log(s);
        sum = Vec::load(lane);
      }
      for (int64_t i = 0; i < n; ++i) {
        const Vec shifted = load(i, v) - max[v];
        const Vec result = kLog ? shifted - sum : exp(shifted) / sum;
        result.store_n(to + i * args.out_stride + v * kLanes, lanes[v]);
      }
    }
  }
}

}  // namespace

void softmax_rows(const SoftmaxArgs &args, int64_t begin, int64_t end) {
  with_types(args, [&](const auto *x, auto *out) {
    for (int64_t r = begin; r < end; ++r) {
      const auto *from = x + nest_offset(args.outer, 0, r);
      auto *to = out + nest_offset(args.outer, 1, r);
      args.log ? row<true>(from, to, args.length) : row<false>(from, to, args.length);
    }
  });
}

void softmax_gathered_rows(const SoftmaxArgs &args, int64_t begin, int64_t end, float *scratch) {
  with_types(args, [&](const auto *x, auto *out) {
    args.log ? gathered_rows<true>(args, x, out, begin, end, scratch)
             : gathered_rows<false>(args, x, out, begin, end, scratch);
  });
}

void softmax_columns(const SoftmaxArgs &args, int64_t begin, int64_t end) {
  with_types(args, [&](const auto *x, auto *out) {
    args.log ? columns<true>(args, x, out, begin, end) : columns<false>(args, x, out, begin, end);
  });
}

void softmax_block_max(const SoftmaxArgs &args, int64_t begin, int64_t end) {
  const int64_t blocks = block_count(args.length);
  with_types(args, [&](const auto *x, auto *) {
    for (int64_t u = begin; u < end; ++u) {
      const int64_t b = u % blocks;
      args.block_max[u] = max_of(x + nest_offset(args.outer, 0, u / blocks) + b * kSumBlock,
                                 block_length(args.length, b));
    }
  });
}

void softmax_fold_max(const SoftmaxArgs &args, int64_t begin, int64_t end) {
  const int64_t blocks = block_count(args.length);
  for (int64_t r = begin; r < end; ++r)
    args.row_max[r] = max_of(args.block_max + r * blocks, blocks);
}

void softmax_block_sum(const SoftmaxArgs &args, int64_t begin, int64_t end) {
  const int64_t blocks = block_count(args.length);
  with_types(args, [&](const auto *x, auto *) {
    for (int64_t u = begin; u < end; ++u) {
      const int64_t r = u / blocks;
      const int64_t b = u % blocks;
      args.block_sum[u] = exp_sum(x + nest_offset(args.outer, 0, r) + b * kSumBlock,
                                  block_length(args.length, b), args.row_max[r]);
    }
  });
}

void softmax_fold_sum(const SoftmaxArgs &args, int64_t begin, int64_t end) {
  const int64_t blocks = block_count(args.length);
  for (int64_t r = begin; r < end; ++r)
    args.row_sum[r] = add_blocks(args.block_sum + r * blocks, blocks);
}

void softmax_block_write(const SoftmaxArgs &args, int64_t begin, int64_t end) {
  const int64_t blocks = block_count(args.length);
  with_types(args, [&](const auto *x, auto *out) {
    for (int64_t u = begin; u < end; ++u) {
      const int64_t r = u / blocks;
      const int64_t b = u % blocks;
      const auto *from = x + nest_offset(args.outer, 0, r) + b * kSumBlock;
      auto *to = out + nest_offset(args.outer, 1, r) + b * kSumBlock;
      const int64_t n = block_length(args.length, b);
      args.log ? write<true>(from, to, n, args.row_max[r], args.row_sum[r])
               : write<false>(from, to, n, args.row_max[r], args.row_sum[r]);
    }
  });
}

}  // namespace BI_ISA
}  // namespace bi
