// SPDX-License-Identifier: Apache-2.0
//
// A matrix product whose left operand has any number of batch extents, as one or few calls of the
// operator library, without copies.
#ifndef BATCH_INVARIANT_OPS_PRODUCTS_H
#define BATCH_INVARIANT_OPS_PRODUCTS_H

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

namespace batch_invariant_ops {

// Extents that a, b and out run through together; a stride of 0 broadcasts. In elements.
struct Extent {
  int64_t size;
  int64_t a;
  int64_t b;
  int64_t out;
};

// out[.., m, n] = a[.., m, :] x b[.., :, n], reduced to as few extents as the strides allow.
struct Products {
  c10::SmallVector<Extent, 4> batch;  // outermost first
  Extent rows;                        // of a and out; its b is 0
};

// `a` is [.., M, K] and `out` [.., M, N], both of out's number of extents after broadcasting; `b`
// is
// [.., K, N], or undefined where all rows meet the same matrix.
Products fold(const at::Tensor &a, const at::Tensor &b, const at::Tensor &out);

// Calls run(a, b, out), offsets in elements, for each of the batch's extents but the last `inner`.
template <typename Run>
void for_each_outer(const Products &products, size_t inner, Run &&run) {
  const size_t outer = products.batch.size() > inner ? products.batch.size() - inner : 0;
  int64_t calls = 1;
  for (size_t d = 0; d < outer; ++d) calls *= products.batch[d].size;
  for (int64_t call = 0; call < calls; ++call) {
    int64_t rest = call, a = 0, b = 0, out = 0;
    for (size_t d = outer; d-- > 0;) {
      const Extent &extent = products.batch[d];
      const int64_t i = rest % extent.size;
      rest /= extent.size;
      a += i * extent.a;
      b += i * extent.b;
      out += i * extent.out;
    }
    run(a, b, out);
  }
}

}  // namespace batch_invariant_ops

#endif
