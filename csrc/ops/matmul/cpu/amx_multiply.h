// SPDX-License-Identifier: Apache-2.0
//
// bf16 by AMX. B is packed as for the other instruction sets: sixteen words by sixteen columns of a
// panel are a tile as they lie. A row block is up to two tiles high, and each of its rows lies
// [words of the block]. The order of the additions is the one of TDPBF16PS over steps of sixteen
// words (32 elements of K) from 0 on; the last step is completed by zeros in both operands.
#ifndef BI_MATMUL_AMX_MULTIPLY_H
#define BI_MATMUL_AMX_MULTIPLY_H

#include <cstdint>
#include <cstring>

#include "row_words.h"
#include "tile.h"
#include "vec.h"

#if defined(BI_AMX_MODEL)
#include "amx_model.h"
#else
#include "amx_registers.h"
#endif

namespace bi {
namespace BI_ISA {

constexpr int kTile = 16;  // rows, and words of a row
constexpr int kAmxRows = 2 * kTile;

inline void amx_pack_a(const Matrix &a, int64_t rows, int64_t k, int64_t block, void *packed) {
  auto *const to = static_cast<uint32_t *>(packed);
  for_each_row_word<bf16>(
      a, rows, k, block, kAmxRows,
      [to](int64_t base, int64_t, int64_t count, int64_t r, int64_t w, bf16 first, bf16 second) {
        to[base + r * count + w] = static_cast<uint32_t>(first.bits) << 16 | second.bits;
      });
}

// The words of a block beyond its last whole step, completed by zeros.
struct AmxTails {
  uint32_t a[kAmxRows][kTile];
  uint32_t b[kTile][kPanel];

  void take_a(const uint32_t *packed, int64_t height, int64_t count) {
    const int64_t tail = count % kTile;
    for (int64_t r = 0; r < height && tail > 0; ++r) {
      std::memset(a[r], 0, sizeof(a[r]));
      std::memcpy(a[r], packed + (r + 1) * count - tail, static_cast<size_t>(tail) * 4);
    }
  }
  void take_b(const uint32_t *packed, int64_t width, int64_t count) {
    const int64_t tail = count % kTile;
    if (tail == 0) return;
    std::memset(b, 0, sizeof(b));
    for (int64_t w = 0; w < tail; ++w)
      std::memcpy(b[w], packed + (count - tail + w) * width, static_cast<size_t>(width) * 4);
  }
};

// One row block over `count` words of the panel; `sums` is [height][width].
inline void amx_row_block(AmxRegisters &tiles, int64_t height, int64_t count, const uint32_t *a,
                          const uint32_t *b, int64_t width, const AmxTails &tails, bool first,
                          float *sums) {
  const bool two_high = height > kTile;
  const int64_t sums_bytes = width * 4;
  tiles.configure(static_cast<int>(two_high ? kTile : height),
                  static_cast<int>(two_high ? height - kTile : 0));
  for (int64_t j = 0; j < width; j += 2 * kTile) {
    const bool two_wide = width - j > kTile;
    float *const upper = sums + j, *const lower = upper + kTile * width;
    if (first) {
      tiles.zero<0>();
      if (two_wide) tiles.zero<1>();
      if (two_high) tiles.zero<2>();
      if (two_high && two_wide) tiles.zero<3>();
    } else {
      tiles.load<0>(upper, sums_bytes);
      if (two_wide) tiles.load<1>(upper + kTile, sums_bytes);
      if (two_high) tiles.load<2>(lower, sums_bytes);
      if (two_high && two_wide) tiles.load<3>(lower + kTile, sums_bytes);
    }
    for (int64_t w = 0; w < count; w += kTile) {
      const bool whole = count - w >= kTile;
      const uint32_t *const step_a = whole ? a + w : tails.a[0];
      const uint32_t *const step_b = (whole ? b + w * width : tails.b[0]) + j;
      const int64_t a_words = whole ? count : kTile, b_words = whole ? width : kPanel;
      tiles.load<4>(step_a, a_words * 4);
      tiles.load<6>(step_b, b_words * 4);
      tiles.dot<0, 4, 6>();
      if (two_wide) {
        tiles.load<7>(step_b + kTile, b_words * 4);
        tiles.dot<1, 4, 7>();
      }
      if (two_high) {
        tiles.load<5>(step_a + kTile * a_words, a_words * 4);
        tiles.dot<2, 5, 6>();
        if (two_wide) tiles.dot<3, 5, 7>();
      }
    }
    tiles.store<0>(upper, sums_bytes);
    if (two_wide) tiles.store<1>(upper + kTile, sums_bytes);
    if (two_high) tiles.store<2>(lower, sums_bytes);
    if (two_high && two_wide) tiles.store<3>(lower + kTile, sums_bytes);
  }
}

// Sums [width], bias added, rounded into a row of out.
inline void amx_finish_row(const float *sums, const float *bias, bf16 *out, int64_t columns) {
  for (int64_t j = 0; j < columns; j += kLanes) {
    const int present = static_cast<int>(columns - j < kLanes ? columns - j : kLanes);
    Vec y = Vec::load(sums + j);
    if (bias != nullptr) y = y + Vec::load_n(bias + j, present);
    y.store_n(out + j, present);
  }
}

// pack_block(w0, count, to) packs words of the tile's panel where it comes unpacked.
template <typename PackBlock>
void amx_multiply(const Tile &t, float *sums, uint32_t *block, PackBlock &&pack_block) {
  const int64_t words = words_of(BI_BFLOAT16, t.k);
  const int64_t width = panel_width(t.n, t.n0);
  const int64_t columns = t.n - t.n0 < width ? t.n - t.n0 : width;
  const int64_t top = row_block_start(t.rows, t.first_block, kAmxRows);
  AmxRegisters tiles;
  AmxTails tails;
  int64_t w0 = 0;
  do {  // once for K = 0
    const int64_t count = words - w0 < kBlock ? words - w0 : kBlock;
    const uint32_t *b = block;
    if (t.packed_b != nullptr)
      b = t.packed_b + w0 * width;
    else
      pack_block(w0, count, block);
    tails.take_b(b, width, count);
    for (int64_t i = t.first_block; i < t.last_block; ++i) {
      const int64_t r0 = row_block_start(t.rows, i, kAmxRows);
      const int64_t height = row_block_start(t.rows, i + 1, kAmxRows) - r0;
      const uint32_t *a = static_cast<const uint32_t *>(t.packed_a) + t.rows * w0 + r0 * count;
      float *const own = sums + (r0 - top) * width;
      tails.take_a(a, height, count);
      amx_row_block(tiles, height, count, a, b, width, tails, w0 == 0, own);
      if (w0 + count < words) continue;
      for (int64_t r = 0; r < height; ++r)
        amx_finish_row(own + r * width, t.bias == nullptr ? nullptr : t.bias + t.n0,
                       static_cast<bf16 *>(t.out) + (r0 + r) * t.out_stride + t.n0, columns);
    }
    w0 += kBlock;
  } while (w0 < words);
  tiles.release();
}

}  // namespace BI_ISA
}  // namespace bi

#endif
