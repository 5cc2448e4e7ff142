// SPDX-License-Identifier: Apache-2.0
//
// Shapes of operators that work along some dimensions of a tensor of any rank.
#ifndef BI_FUZZ_SHAPES_H
#define BI_FUZZ_SHAPES_H

#include <cstdint>
#include <vector>

#include "random.h"
#include "tensor.h"
#include "values.h"

namespace bi_fuzz {

// Few elements, or one long dimension, sometimes none at all.
inline Shape random_shape(Random &random, int64_t least_rank = 0) {
  Shape shape(static_cast<size_t>(random.between(least_rank, 5)));
  int64_t count = 1;
  for (int64_t &extent : shape) {
    extent = random.percent(2) ? 0 : random.between(1, random.percent(25) ? 40 : 6);
    while (count * extent > 3000) extent = (extent + 1) / 2;
    count *= extent;
  }
  if (!shape.empty() && random.percent(6)) {
    int64_t &extent = shape[static_cast<size_t>(random.below(static_cast<int64_t>(shape.size())))];
    const int64_t others = count / (extent > 0 ? extent : 1);
    if (others <= 4) extent = random.between(4000, 13000) / (others > 0 ? others : 1);
  }
  return shape;
}

inline int32_t random_dtype(Random &random) {
  return random.one_of<int32_t>({BI_FLOAT32, BI_BFLOAT16, BI_FLOAT16});
}

inline Tensor random_input(Random &random, int32_t dtype, const Shape &shape, int unit_dim = -1) {
  Tensor tensor(random, dtype, shape, {Role::input, unit_dim});
  Values(random).fill(tensor);
  tensor.remember();
  return tensor;
}

inline Tensor random_output(Random &random, int32_t dtype, const Shape &shape, int unit_dim = -1) {
  Tensor tensor(random, dtype, shape, {Role::output, unit_dim});
  tensor.remember();
  return tensor;
}

// A dimension of a tensor, as a caller may write it.
inline int32_t random_dim(Random &random, size_t rank, int64_t dim) {
  const auto count = static_cast<int64_t>(rank > 0 ? rank : 1);
  return static_cast<int32_t>(random.percent(30) ? dim - count : dim);
}

// One that it does not have.
inline int32_t wrong_dim(Random &random, size_t rank) {
  const auto count = static_cast<int32_t>(rank > 0 ? rank : 1);
  return random.one_of<int32_t>({count, -count - 1, INT32_MAX, INT32_MIN});
}

}  // namespace bi_fuzz

#endif
