// SPDX-License-Identifier: Apache-2.0
//
// Walking strided tensors: a nest of extents, outermost first, with one stride per operand.
// Everything here is `static`: kernels are compiled for several instruction sets, and a function
// shared by the linker could be the one this machine does not run.
#ifndef BI_CPU_STRIDED_H
#define BI_CPU_STRIDED_H

#include <cstdint>

namespace bi {

constexpr int kMaxDims = 16;

// `kOperands` tensors walked together, in row-major order of `size`.
template <int kOperands>
struct Nest {
  int dims = 0;
  int64_t size[kMaxDims] = {};
  int64_t stride[kOperands][kMaxDims] = {};
};

template <int kOperands>
static inline int64_t nest_count(const Nest<kOperands> &nest) {
  int64_t count = 1;
  for (int d = 0; d < nest.dims; ++d) count *= nest.size[d];
  return count;
}

// Offset, in elements, of position `index` of the nest in operand `k`.
template <int kOperands>
static inline int64_t nest_offset(const Nest<kOperands> &nest, int k, int64_t index) {
  int64_t offset = 0;
  for (int d = nest.dims - 1; d > 0; --d) {
    offset += index % nest.size[d] * nest.stride[k][d];
    index /= nest.size[d];
  }
  return nest.dims > 0 ? offset + index * nest.stride[k][0] : offset;
}

// Appends an innermost extent, merged into the last one where all operands allow it. The order of
// the walk is unchanged.
template <int kOperands>
static inline void nest_append(Nest<kOperands> &nest, int64_t size, const int64_t *strides) {
  if (size == 1) return;
  const int last = nest.dims - 1;
  bool merge = last >= 0;
  for (int k = 0; merge && k < kOperands; ++k) merge = nest.stride[k][last] == size * strides[k];
  if (merge) {
    nest.size[last] *= size;
    for (int k = 0; k < kOperands; ++k) nest.stride[k][last] = strides[k];
    return;
  }
  nest.size[nest.dims] = size;
  for (int k = 0; k < kOperands; ++k) nest.stride[k][nest.dims] = strides[k];
  ++nest.dims;
}

}  // namespace bi

#endif
