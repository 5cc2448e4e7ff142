// SPDX-License-Identifier: Apache-2.0
//
// The walk that packs a row block of A, for every form in which a kernel wants its words.
#ifndef BI_MATMUL_ROW_WORDS_H
#define BI_MATMUL_ROW_WORDS_H

#include "tile.h"

namespace bi {
namespace BI_ISA {

// put(base, height, count, r, w, first, second) for each word w of row r in each block of `count`
// words: the block's packed words begin at `base`, and the word holds the elements `first` and
// `second` (zero beyond k; unused where a word is one element).
template <typename Element, typename Put>
void for_each_row_word(const Matrix &a, int64_t rows, int64_t k, int64_t block, int block_rows,
                       Put &&put) {
  constexpr int kStep = 4 / sizeof(Element);
  const int64_t words = (k + kStep - 1) / kStep;
  const int64_t r0 = row_block_start(rows, block, block_rows);
  const int64_t height = row_block_start(rows, block + 1, block_rows) - r0;
  for (int64_t w0 = 0; w0 < words; w0 += kBlock) {
    const int64_t count = words - w0 < kBlock ? words - w0 : kBlock;
    const int64_t base = rows * w0 + r0 * count;
    for (int64_t r = 0; r < height; ++r) {
      const Element *from = static_cast<const Element *>(a.data) + (r0 + r) * a.row_stride;
      for (int64_t w = 0; w < count; ++w) {
        const int64_t e = (w0 + w) * kStep;
        Element second{};
        if (kStep == 2 && e + 1 < k) second = from[(e + 1) * a.col_stride];
        put(base, height, count, r, w, from[e * a.col_stride], second);
      }
    }
  }
}

}  // namespace BI_ISA
}  // namespace bi

#endif
