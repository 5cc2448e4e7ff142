// SPDX-License-Identifier: Apache-2.0
//
// Buffers of exactly the bytes that an operator may touch. What lies beside them is found in one of
// two ways, at random: on the heap by the address sanitizer, which sees what the compiler emitted,
// and at the edge of an inaccessible page by the hardware, which also sees the masked loads and
// stores that the sanitizer does not instrument.
#ifndef BI_FUZZ_MEMORY_H
#define BI_FUZZ_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <memory>

#include "random.h"

namespace bi_fuzz {

enum class Edge { heap, after, before };

class Buffer {
 public:
  Buffer(size_t bytes, Edge edge);
  Buffer(Buffer &&) = default;
  Buffer &operator=(Buffer &&) = default;

  unsigned char *data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::shared_ptr<void> owner_;
  unsigned char *data_ = nullptr;
  size_t size_ = 0;
};

inline Edge random_edge(Random &random) {
  return random.one_of({Edge::heap, Edge::heap, Edge::after, Edge::before});
}

}  // namespace bi_fuzz

#endif
