// SPDX-License-Identifier: Apache-2.0
//
// Cuts multiplications into tiles and spreads them over threads. Only rows and columns are divided,
// never the reduced dimension, so no cut changes a bit.
#ifndef BI_MATMUL_PLAN_H
#define BI_MATMUL_PLAN_H

#include <cstdint>
#include <vector>

#include "tile.h"

namespace bi {

// What the products of one call share.
struct Shape {
  int32_t dtype;  // that check_matmul_dtype has passed
  int64_t k, n;
  int64_t out_stride;  // of rows, in elements
  const float *bias;   // [N] or null
};

// out[rows, N] = a[rows, K] x b[K, N]; b packed or not.
struct Product {
  Matrix a;
  int64_t rows;
  const uint32_t *packed_b;  // or null
  Matrix b;
  void *out;
};

// Throws std::bad_alloc, or Error where the workspace's size overflows.
void multiply_all(const Shape &shape, const std::vector<Product> &products, int threads);

}  // namespace bi

#endif
