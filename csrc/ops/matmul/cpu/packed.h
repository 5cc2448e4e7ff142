// SPDX-License-Identifier: Apache-2.0
//
// The packed form of a weight: a header, then for each expert its panels one after another, each
// [words of K][panel_width] (tile.h).
#ifndef BI_MATMUL_PACKED_H
#define BI_MATMUL_PACKED_H

#include <cstddef>
#include <cstdint>

#include "batch_invariant.h"

namespace bi {

// What the header says; it tells a packed weight from other bytes and from one of another shape.
struct PackedWeight {
  int32_t dtype;
  int64_t experts, k, n;

  // Words of one expert. Throw Error where sizes overflow.
  int64_t expert_words() const;
  size_t bytes() const;

  void write_header(void *packed) const;
  static PackedWeight read_header(const void *packed, size_t size);

  const uint32_t *expert(const void *packed, int64_t e) const;
};

}  // namespace bi

#endif
