// SPDX-License-Identifier: Apache-2.0
#include "products.h"

namespace batch_invariant_ops {
namespace {

// The stride of out's extent `dim` in an operand whose extents are aligned with out's at the end.
int64_t aligned_stride(const at::Tensor &operand, const at::Tensor &out, int64_t dim) {
  if (!operand.defined()) return 0;
  const int64_t own = dim - (out.dim() - operand.dim());
  return own < 0 || operand.size(own) == 1 ? 0 : operand.stride(own);
}

// Whether `outer` steps over all of `inner`, so that both are one extent.
bool adjacent(const Extent &outer, const Extent &inner) {
  return outer.a == inner.size * inner.a && outer.b == inner.size * inner.b &&
         outer.out == inner.size * inner.out;
}

}  // namespace

Products fold(const at::Tensor &a, const at::Tensor &b, const at::Tensor &out) {
  Products products;
  products.rows = {out.size(-2), a.stride(-2), 0, out.stride(-2)};
  for (int64_t dim = 0; dim < out.dim() - 2; ++dim) {
    const Extent extent = {out.size(dim), aligned_stride(a, out, dim), aligned_stride(b, out, dim),
                           out.stride(dim)};
    if (extent.size == 1) continue;
    if (!products.batch.empty() && adjacent(products.batch.back(), extent)) {
      products.batch.back() = {products.batch.back().size * extent.size, extent.a, extent.b,
                               extent.out};
    } else {
      products.batch.push_back(extent);
    }
  }
  // Rows that meet the same matrix are rows of one product.
  if (products.rows.size == 1 && !products.batch.empty() && products.batch.back().b == 0) {
    products.rows = products.batch.pop_back_val();
  }
  if (!products.batch.empty() && products.batch.back().b == 0 &&
      adjacent(products.batch.back(), products.rows)) {
    products.rows.size *= products.batch.pop_back_val().size;
  }
  return products;
}

}  // namespace batch_invariant_ops
