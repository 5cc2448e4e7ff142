// SPDX-License-Identifier: Apache-2.0
//
// What the plan of a multiplication (plan.cpp, compiled once) and its kernels (matmul_kernel.cpp,
// compiled for each instruction set) agree on: how operands are packed and what one tile is.
//
// The reduced dimension is counted in *words* of 32 bits: one fp32, or a pair of 16-bit elements
// (words.h). An odd K is completed by one zero on both sides then. In the whole library an output
// element is one chain over its words in ascending order; blocks of words only say when the partial
// sums, in fp32, rest in memory.
#ifndef BI_MATMUL_TILE_H
#define BI_MATMUL_TILE_H

#include <cstddef>
#include <cstdint>

#include "batch_invariant.h"
#include "dispatch.h"

namespace bi {

// A panel of B: this many columns, word by word; of fp16, sixteen columns' earlier elements lie
// before their later ones, as the conversion to fp32 wants them. Four vectors: with kRows rows that
// makes 24 accumulators, enough to hide the latency of a fused multiply-add, and leaves registers
// for four words of B and two of A.
constexpr int kPanel = 64;
constexpr int kRows = 6;  // of a row block, where lanes multiply
// A block: this many words of the reduced dimension. One panel's block is 64 KiB and stays in L2
// while all rows pass over it.
constexpr int64_t kBlock = 256;

inline int64_t words_of(int32_t dtype, int64_t k) {
  return dtype == BI_FLOAT32 ? k : k / 2 + k % 2;
}
// Columns of the panel that begins at column n0, as stored: whole vectors, zeros beyond N.
inline int64_t panel_width(int64_t n, int64_t n0) {
  return n - n0 >= kPanel ? kPanel : (n - n0 + 15) / 16 * 16;
}

// Rows are cut into blocks of nearly equal height, at most `most` (MatmulKernels::block_rows); A is
// packed block of words by block of words, in each row block by row block.
inline int64_t row_blocks(int64_t rows, int64_t most) { return (rows + most - 1) / most; }
inline int64_t row_block_start(int64_t rows, int64_t block, int64_t most) {
  return block * rows / row_blocks(rows, most);
}

// [rows, cols] with any strides, in elements of dtype.
struct Matrix {
  const void *data;
  int64_t row_stride;
  int64_t col_stride;
};

// Row blocks [first_block, last_block) of a matrix A of `rows` rows, times one panel of B.
struct Tile {
  int32_t dtype;
  int64_t rows, k, n;
  const void *packed_a;
  int64_t first_block, last_block;
  int64_t n0;                // the panel's first column
  const uint32_t *packed_b;  // the panel, or null: taken from b
  Matrix b;                  // [K, N]
  const float *bias;         // [N] or null
  void *out;                 // element (0, 0); unit stride in columns
  int64_t out_stride;
};

struct MatmulKernels {
  // Rows of a row block, at most.
  int64_t (*block_rows)(int32_t dtype);
  // Bytes of packed A for one row and one word.
  size_t (*a_bytes)(int32_t dtype);
  // Packs one row block of a [rows, k].
  void (*pack_a)(int32_t dtype, const Matrix &a, int64_t rows, int64_t k, int64_t block,
                 void *packed);
  // Packs the panel that begins at column n0 of b [k, n].
  void (*pack_b)(int32_t dtype, const Matrix &b, int64_t k, int64_t n, int64_t n0,
                 uint32_t *packed);
  // `sums`: fp32 [rows of the tile][kPanel]; `block`: [kBlock][kPanel] words where packed_b is
  // null.
  void (*multiply)(const Tile &tile, float *sums, uint32_t *block);
};

BI_KERNEL(const MatmulKernels &, matmul_kernels, ())

}  // namespace bi

#endif
