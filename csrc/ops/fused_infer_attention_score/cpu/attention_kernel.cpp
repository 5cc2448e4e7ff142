// SPDX-License-Identifier: Apache-2.0
//
// One task: up to kTaskRows rows against the keys they see, tile by tile. README.md states the
// sequence of operations of a row; everything else here is about sharing loads between rows.
#include "attention_kernel.h"

#include "exp_log.h"
#include "float_types.h"
#include "transpose.h"

namespace bi {
namespace BI_ISA {
namespace {

constexpr float kInfinity = __builtin_inff();

// Keys are transposed a panel at a time, so that a panel stays in the first-level cache.
constexpr int kPanel = 32;
constexpr int kPanelVecs = kPanel / kLanes;

// Up to so many rows read values where they lie; more share a widened copy.
constexpr int64_t kDirectRows = 8;

// What a row carries from tile to tile.
struct Rows {
  float max[kTaskRows];    // running maximum of the scaled scores
  float sum[kTaskRows];    // running sum of exp(score - max)
  float alpha[kTaskRows];  // this tile's factor for what was accumulated before
  int begin[kTaskRows];    // the positions of this tile that the row sees; begin >= end: none
  int end[kTaskRows];
};

struct Workspace {
  float *query;   // rows in groups of 8, 4, 2, 1; per group [D][rows]
  float *keys;    // [D][kPanel]
  float *scores;  // [kTaskRows][kKvTile], then probabilities
  float *values;  // [D / kPanel][kKvTile][kPanel]
  float *output;  // [kTaskRows][padded D]
  float *zeros;   // a key for positions that no row sees
  int64_t padded;
};

// Calls f(std::integral_constant-like size, first row) for groups of 8, 4, 2 and 1 rows.
template <int kSize>
struct GroupSize {
  static constexpr int value = kSize;
};

template <typename F>
void each_group(int64_t rows, F &&f) {
  int64_t r = 0;
  for (; r + 8 <= rows; r += 8) f(GroupSize<8>{}, r);
  if (r + 4 <= rows) f(GroupSize<4>{}, r), r += 4;
  if (r + 2 <= rows) f(GroupSize<2>{}, r), r += 2;
  if (r < rows) f(GroupSize<1>{}, r);
}

// Scaled scores of kRows rows against a panel: per score one chain of fused multiply-adds over d,
// ascending from +0, then one multiplication.
template <int kRows>
void panel_scores(const float *query, const float *keys, int64_t dims, float scale, float *scores) {
  Vec acc[kRows][kPanelVecs];
  for (auto &row : acc)
    for (Vec &v : row) v = Vec::zero();
  for (int64_t d = 0; d < dims; ++d) {
    Vec k[kPanelVecs];
    for (int v = 0; v < kPanelVecs; ++v) k[v] = Vec::load(keys + d * kPanel + v * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const Vec q = Vec::set1(query[d * kRows + r]);
      for (int v = 0; v < kPanelVecs; ++v) acc[r][v] = Vec::fma(q, k[v], acc[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kPanelVecs; ++v)
      (acc[r][v] * Vec::set1(scale)).store(scores + r * kKvTile + v * kLanes);
}

// A row's softmax over the tile: scores become probabilities, relative to the new maximum.
void tile_softmax(Rows &rows, int64_t r, float *scores) {
  const int begin = rows.begin[r];
  const int end = rows.end[r];
  const int first = begin / kLanes * kLanes;
  auto visible = [&](int i) {
    const int from = begin - i;
    const int to = end - i;
    return Vec::keep(Vec::load(scores + i), from > 0 ? from : 0, to < kLanes ? to : kLanes,
                     -kInfinity);
  };
  Vec largest = Vec::set1(-kInfinity);
  for (int i = first; i < end; i += kLanes) largest = Vec::max(visible(i), largest);
  const float tile_max = largest.largest();
  const float max = tile_max > rows.max[r] ? tile_max : rows.max[r];
  // Nothing but -inf so far: 0 as the reference keeps exp(-inf - max) at 0 instead of NaN.
  const float reference = max == -kInfinity ? 0.0f : max;
  Vec sum = Vec::zero();
  for (int i = first; i < end; i += kLanes) {
    const Vec p = exp(visible(i) - Vec::set1(reference));
    p.store(scores + i);
    sum = sum + p;
  }
  const float alpha = exp(Vec::set1(rows.max[r] - reference)).first();
  rows.alpha[r] = alpha;
  rows.sum[r] =
      Vec::fma(Vec::set1(rows.sum[r]), Vec::set1(alpha), Vec::set1(reduce_add(sum))).first();
  rows.max[r] = max;
}

// The positions of a tile that a group of rows sees: any of them, and all of them.
struct Spans {
  int any_begin, any_end;
  int all_begin, all_end;
};

Spans spans_of(const Rows &rows, int64_t first, int count) {
  Spans s = {kKvTile, 0, 0, kKvTile};
  for (int64_t r = first; r < first + count; ++r) {
    const int begin = rows.begin[r];
    const int end = rows.end[r];
    if (begin < end) {
      if (begin < s.any_begin) s.any_begin = begin;
      if (end > s.any_end) s.any_end = end;
    }
    if (begin > s.all_begin) s.all_begin = begin;
    if (end < s.all_end) s.all_end = end;
  }
  if (s.all_begin >= s.all_end) s.all_begin = s.all_end = s.any_end;
  return s;
}

// kVecs vectors of the output of kRows rows: per element one chain of fused multiply-adds over the
// tile's positions that the row sees, ascending from +0, then output = output * alpha + chain.
// A position that a row doesn't see is not multiplied by 0 but left out: it may hold anything.
template <int kRows, int kVecs, bool kTail, typename T>
void tile_output(const float *p, const T *const *values, int64_t offset, int tail,
                 const Spans &spans, const Rows &rows, int64_t first, float *output,
                 int64_t output_stride) {
  Vec acc[kRows][kVecs];
  for (auto &row : acc)
    for (Vec &v : row) v = Vec::zero();
  auto load = [&](int position, Vec *x) {
    const T *from = values[position] + offset;
    for (int v = 0; v < kVecs; ++v)
      x[v] = kTail ? Vec::load_n(from, tail) : Vec::load(from + v * kLanes);
  };
  auto ragged = [&](int begin, int end) {
    for (int i = begin; i < end; ++i) {
      Vec x[kVecs];
      load(i, x);
      for (int r = 0; r < kRows; ++r) {
        if (i < rows.begin[first + r] || i >= rows.end[first + r]) continue;
        for (int v = 0; v < kVecs; ++v)
          acc[r][v] = Vec::fma(Vec::set1(p[r * kKvTile + i]), x[v], acc[r][v]);
      }
    }
  };
  ragged(spans.any_begin, spans.all_begin < spans.any_end ? spans.all_begin : spans.any_end);
  for (int i = spans.all_begin; i < spans.all_end; ++i) {
    Vec x[kVecs];
    load(i, x);
    for (int r = 0; r < kRows; ++r) {
      const Vec weight = Vec::set1(p[r * kKvTile + i]);
      for (int v = 0; v < kVecs; ++v) acc[r][v] = Vec::fma(weight, x[v], acc[r][v]);
    }
  }
  ragged(spans.all_end, spans.any_end);
  for (int r = 0; r < kRows; ++r) {
    if (rows.begin[first + r] >= rows.end[first + r]) continue;
    const Vec alpha = Vec::set1(rows.alpha[first + r]);
    for (int v = 0; v < kVecs; ++v) {
      float *const o = output + r * output_stride + v * kLanes;
      Vec::fma(Vec::load(o), alpha, acc[r][v]).store(o);
    }
  }
}

// All of D for a group of rows, in steps of as many vectors as registers allow. Values lie in rows
// of D elements, or (packed) in panels of kPanel.
template <int kRows, bool kPacked, typename T>
void group_output(const Workspace &w, const T *const *values, const Rows &rows, int64_t first,
                  int64_t dims) {
  const Spans spans = spans_of(rows, first, kRows);
  if (spans.any_begin >= spans.any_end) return;
  const float *const p = w.scores + first * kKvTile;
  float *const output = w.output + first * w.padded;
  int64_t v = 0;
  // Packed panels are padded with zeros: no tail.
  const int64_t full = kPacked ? (dims + kLanes - 1) / kLanes : dims / kLanes;
  auto sweep = [&](auto step) {
    constexpr int kVecs = decltype(step)::value;
    for (; v + kVecs <= full; v += kVecs) {
      const int64_t at = v * kLanes;
      const int64_t offset = kPacked ? at / kPanel * (kKvTile * kPanel) + at % kPanel : at;
      tile_output<kRows, kVecs, false>(p, values, offset, 0, spans, rows, first, output + at,
                                       w.padded);
    }
  };
  if constexpr (!kPacked && kRows <= 2) sweep(GroupSize<8>{});
  if constexpr (!kPacked && kRows <= 4) sweep(GroupSize<4>{});
  sweep(GroupSize<2>{});
  sweep(GroupSize<1>{});
  if (!kPacked && dims % kLanes != 0) {
    const int64_t at = full * kLanes;
    tile_output<kRows, 1, true>(p, values, at, static_cast<int>(dims - at), spans, rows, first,
                                output + at, w.padded);
  }
}

// Addresses of one tile's keys or values, for positions [begin, end) of the tile.
template <typename T>
void tile_rows(const AttentionArgs &args, const AttentionTask &task, const T *base,
               int64_t block_stride, int64_t position_stride, int64_t tile, int begin, int end,
               const T **rows) {
  if (args.block_table == nullptr) {
    for (int i = begin; i < end; ++i)
      rows[i] = base + (task.kv_begin + tile * kKvTile + i) * position_stride;
    return;
  }
  const int32_t *const table = args.block_table + task.request * args.block_table_stride;
  int64_t block = (tile * kKvTile + begin) / args.block_size;
  int64_t slot = (tile * kKvTile + begin) % args.block_size;
  for (int i = begin; i < end; ++i) {
    rows[i] = base + table[block] * block_stride + slot * position_stride;
    if (++slot == args.block_size) {
      slot = 0;
      ++block;
    }
  }
}

// Asks for rows [begin, end) of a tile ahead of their use. A position's row is a few hundred bytes
// far from the next one's, a pattern that hardware does not foresee. Into the second-level cache
// (2): rows a power of two apart share sets of the first and would drive each other out.
template <typename T>
void prefetch_rows(const T *const *rows, int begin, int end, int64_t dims) {
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  for (int i = begin; i < end; ++i)
    for (int64_t d = 0; d < dims; d += kLine) __builtin_prefetch(rows[i] + d, 0, 2);
}

template <typename T>
void load_query(const AttentionArgs &args, const AttentionTask &task, const Workspace &w) {
  each_group(task.rows, [&](auto size, int64_t first) {
    constexpr int kRows = decltype(size)::value;
    float *const to = w.query + first * args.head_dim;
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = task.row_begin + first + r;
      const T *const from = static_cast<const T *>(args.query) +
                            (task.q_begin + row / args.group) * args.query_row +
                            (task.kv_head * args.group + row % args.group) * args.query_head;
      for (int64_t d = 0; d < args.head_dim; ++d) to[d * kRows + r] = to_float(from[d]);
    }
  });
}

template <typename T>
void store_output(const AttentionArgs &args, const AttentionTask &task, const Workspace &w,
                  const Rows &rows) {
  for (int64_t r = 0; r < task.rows; ++r) {
    const int64_t row = task.row_begin + r;
    const int64_t q_row = task.q_begin + row / args.group;
    const int64_t head = task.kv_head * args.group + row % args.group;
    const Visible seen = visible_keys(args, task.q_len, task.kv_len, row / args.group);
    const bool any = seen.begin < seen.end;
    T *const out = static_cast<T *>(args.out) + q_row * args.out_row + head * args.out_head;
    const Vec sum = Vec::set1(rows.sum[r]);
    for (int64_t d = 0; d < args.head_dim; d += kLanes) {
      const int64_t left = args.head_dim - d;
      const Vec y = any ? Vec::load(w.output + r * w.padded + d) / sum : Vec::zero();
      if (left >= kLanes)
        y.store(out + d);
      else
        y.store_n(out + d, static_cast<int>(left));
    }
    if (args.lse != nullptr)
      args.lse[q_row * args.lse_row + head * args.lse_head] =
          any ? rows.max[r] + log(rows.sum[r]) : -kInfinity;
  }
}

template <typename T>
void attend(const AttentionArgs &args, const AttentionTask &task, const Workspace &w) {
  const int64_t dims = args.head_dim;
  const T *const key = static_cast<const T *>(args.key) + task.kv_head * args.key_head;
  const T *const value = static_cast<const T *>(args.value) + task.kv_head * args.value_head;
  Rows rows;
  int64_t begin = task.kv_len;
  int64_t end = 0;
  for (int64_t r = 0; r < task.rows; ++r) {
    rows.max[r] = -kInfinity;
    rows.sum[r] = 0.0f;
    const Visible v =
        visible_keys(args, task.q_len, task.kv_len, (task.row_begin + r) / args.group);
    if (v.begin >= v.end) continue;
    if (v.begin < begin) begin = v.begin;
    if (v.end > end) end = v.end;
  }
  std::memset(w.output, 0, sizeof(float) * static_cast<size_t>(task.rows * w.padded));
  std::memset(w.zeros, 0, sizeof(float) * static_cast<size_t>(w.padded));
  load_query<T>(args, task, w);
  const bool packed = task.rows > kDirectRows;

  for (int64_t tile = begin / kKvTile; tile * kKvTile < end; ++tile) {
    const int64_t at = tile * kKvTile;
    int tile_begin = kKvTile;
    int tile_end = 0;
    for (int64_t r = 0; r < task.rows; ++r) {
      const Visible v =
          visible_keys(args, task.q_len, task.kv_len, (task.row_begin + r) / args.group);
      rows.begin[r] = static_cast<int>(v.begin <= at            ? 0
                                       : v.begin - at < kKvTile ? v.begin - at
                                                                : kKvTile);
      rows.end[r] = static_cast<int>(v.end <= at ? 0 : v.end - at < kKvTile ? v.end - at : kKvTile);
      if (rows.begin[r] >= rows.end[r]) continue;
      if (rows.begin[r] < tile_begin) tile_begin = rows.begin[r];
      if (rows.end[r] > tile_end) tile_end = rows.end[r];
    }
    if (tile_begin >= tile_end) continue;

    const T *keys[kKvTile];
    const T *values[kKvTile];
    for (const T *&k : keys) k = reinterpret_cast<const T *>(w.zeros);
    tile_rows(args, task, key, args.key_block, args.key_position, tile, tile_begin, tile_end, keys);
    tile_rows(args, task, value, args.value_block, args.value_position, tile, tile_begin, tile_end,
              values);
    for (int panel_begin = tile_begin / kPanel * kPanel; panel_begin < tile_end;
         panel_begin += kPanel) {
      const int panel_end = panel_begin + kPanel;
      auto within = [&](int i) {
        return i < tile_begin ? tile_begin : i < tile_end ? i : tile_end;
      };
      prefetch_rows(keys, within(panel_end), within(panel_end + kPanel), dims);
      prefetch_rows(values, within(panel_begin), within(panel_end), dims);
      for (int l = 0; l < kPanel; l += kLanes)
        transpose_rows(keys + panel_begin + l, dims, w.keys + l, kPanel);
      each_group(task.rows, [&](auto size, int64_t first) {
        panel_scores<decltype(size)::value>(w.query + first * dims, w.keys, dims, args.scale,
                                            w.scores + first * kKvTile + panel_begin);
      });
    }
    if (const int64_t left = end - at - kKvTile; left > 0) {
      const int ahead = static_cast<int>(left < kPanel ? left : kPanel);
      tile_rows(args, task, key, args.key_block, args.key_position, tile + 1, 0, ahead, keys);
      prefetch_rows(keys, 0, ahead, dims);
    }

    for (int64_t r = 0; r < task.rows; ++r)
      if (rows.begin[r] < rows.end[r]) tile_softmax(rows, r, w.scores + r * kKvTile);

    if (packed) {
      const float *copies[kKvTile];
      for (int i = tile_begin; i < tile_end; ++i) {
        copies[i] = w.values + i * kPanel;
        for (int64_t d = 0; d < dims; d += kLanes) {
          float *const to = w.values + d / kPanel * (kKvTile * kPanel) + i * kPanel + d % kPanel;
          const int64_t left = dims - d;
          const Vec x = left >= kLanes ? Vec::load(values[i] + d)
                                       : Vec::load_n(values[i] + d, static_cast<int>(left));
          x.store(to);
        }
      }
      each_group(task.rows, [&](auto size, int64_t first) {
        group_output<decltype(size)::value, true>(w, copies, rows, first, dims);
      });
    } else {
      each_group(task.rows, [&](auto size, int64_t first) {
        group_output<decltype(size)::value, false>(w, values, rows, first, dims);
      });
    }
  }
  store_output<T>(args, task, w, rows);
}

}  // namespace

void attention_rows(const AttentionArgs &args, const AttentionTask &task, float *workspace) {
  Workspace w;
  w.padded = (args.head_dim + kPanel - 1) / kPanel * kPanel;
  w.query = workspace;
  w.keys = w.query + kTaskRows * w.padded;
  w.scores = w.keys + kPanel * w.padded;
  w.values = w.scores + kTaskRows * kKvTile;
  w.output = w.values + kKvTile * w.padded;
  w.zeros = w.output + kTaskRows * w.padded;
  with_float_type(args.dtype, [&](auto type) { attend<decltype(type)>(args, task, w); });
}

}  // namespace BI_ISA
}  // namespace bi
