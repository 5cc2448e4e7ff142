// SPDX-License-Identifier: Apache-2.0
//
// bi_grouped_matmul: each expert's rows are one product of matmul's plan.
#include <cstdint>
#include <string>
#include <vector>

#include "batch_invariant.h"
#include "matmul/cpu/operands.h"
#include "matmul/cpu/packed.h"
#include "matmul/cpu/plan.h"
#include "runtime.h"

namespace bi {
namespace {

void check_group_list(const int64_t *group_list, int64_t experts, int64_t rows) {
  if (experts < 0)
    fail(BI_INVALID_ARGUMENT, "experts: expected 0 or more, found " + std::to_string(experts));
  if (group_list == nullptr && experts > 0)
    fail(BI_INVALID_ARGUMENT, "group_list: expected a list, found a null pointer");
  int64_t end = 0;
  for (int64_t e = 0; e < experts; ++e) {
    if (group_list[e] < end)
      fail(BI_INVALID_ARGUMENT, "group_list: expected ascending row ends, found " +
                                    std::to_string(group_list[e]) + " after " +
                                    std::to_string(end) + " at " + std::to_string(e));
    end = group_list[e];
  }
  if (end != rows)
    fail(BI_INVALID_ARGUMENT, "group_list: expected the last row end to be " +
                                  std::to_string(rows) + " (the rows of a), found " +
                                  std::to_string(end));
}

void grouped_matmul(const bi_tensor *a, const bi_tensor *b, const void *packed, size_t size,
                    const int64_t *group_list, int64_t experts, const bi_tensor *out, int threads) {
  check_threads(threads);
  check_matrix("a", a, 2, 2);
  const int64_t rows = a->shape[0], k = a->shape[1];
  check_group_list(group_list, experts, rows);
  if ((b == nullptr) == (packed == nullptr))
    fail(BI_INVALID_ARGUMENT, "b, packed: expected exactly one of them");
  int64_t n = 0;
  PackedWeight weight{};
  if (b != nullptr) {
    check_matrix("b", b, 3, 3);
    check_same_dtype("b", *b, "a", a->dtype);
    check_extent("b", *b, 0, experts, "the number of experts");
    check_extent("b", *b, 1, k, "the columns of a");
    n = b->shape[2];
  } else {
    weight = check_packed(packed, size, *a, experts);
    n = weight.n;
  }
  check_matrix("out", out, 2, 2);
  check_same_dtype("out", *out, "a", a->dtype);
  check_extent("out", *out, 0, rows, "the rows of a");
  check_extent("out", *out, 1, n, "the columns of b");
  check_unit_columns("out", *out);
  if (element_count(*out) == 0) return;

  const int64_t element = element_bytes(a->dtype);
  const Shape shape{a->dtype, k, n, out->stride[0], nullptr};
  std::vector<Product> products;
  int64_t begin = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t end = group_list[e];
    if (end > begin) {
      Product p;
      p.a = matrix_of(*a, 0);
      p.a.data = static_cast<const char *>(p.a.data) + begin * p.a.row_stride * element;
      p.rows = end - begin;
      p.packed_b = b == nullptr ? weight.expert(packed, e) : nullptr;
      p.b = b == nullptr ? Matrix{nullptr, 0, 0} : matrix_of(*b, e);
      p.out = static_cast<char *>(out->data) + begin * out->stride[0] * element;
      products.push_back(p);
    }
    begin = end;
  }
  multiply_all(shape, products, threads);
}

}  // namespace
}  // namespace bi

extern "C" bi_status bi_grouped_matmul(const bi_tensor *a, const bi_tensor *b, const void *packed,
                                       size_t size, const int64_t *group_list, int64_t experts,
                                       const bi_tensor *out, int threads) {
  return bi::guarded(
      [&] { bi::grouped_matmul(a, b, packed, size, group_list, experts, out, threads); });
}
