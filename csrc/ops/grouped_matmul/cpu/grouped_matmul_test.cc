// SPDX-License-Identifier: Apache-2.0
//
// grouped matmul: each row's bits are those that the matmul of its expert gives.
#include <cstdint>
#include <string>
#include <vector>

#include "batch_invariant.h"
#include "matmul/cpu/chain.h"

namespace {

using bi_test::expect;
using bi_test::expect_error;
using bi_test::expect_ok;
using bi_test::expect_same;
using chain::Tensor;
using chain::Values;

// Row by row, one expert at a time, by bi_matmul.
Tensor row_by_row(Tensor &a, Tensor &b, const std::vector<int64_t> &ends) {
  const int64_t k = a.cols(), n = b.cols();
  Tensor out(a.dtype, {a.rows(), n});
  size_t expert = 0;
  for (int64_t r = 0; r < a.rows(); ++r) {
    while (ends[expert] <= r) ++expert;
    Tensor row(a.dtype, {1, k}), matrix(a.dtype, {k, n}), y(a.dtype, {1, n});
    for (int64_t j = 0; j < k; ++j) row.set(0, 0, j, a.get(0, r, j));
    for (int64_t j = 0; j < k; ++j)
      for (int64_t c = 0; c < n; ++c)
        matrix.set(0, j, c, b.get(static_cast<int64_t>(expert), j, c));
    const bi_tensor vrow = row.view(), vmatrix = matrix.view(), vy = y.view();
    expect_ok(bi_matmul(&vrow, &vmatrix, nullptr, &vy, 1), "bi_matmul");
    for (int64_t c = 0; c < n; ++c) out.set(0, r, c, y.get(0, 0, c));
  }
  return out;
}

void test_rows_are_matmuls() {
  Values random(11);
  for (int32_t dtype : bi_test::kDtypes)
    for (int64_t k : {31, 600}) {
      const std::vector<int64_t> ends = {0, 1, 1, 9, 29, 30};
      const auto experts = static_cast<int64_t>(ends.size());
      const int64_t n = 83;
      Tensor a(dtype, {30, k});
      Tensor b(dtype, {experts, k, n}, {k * n, 1, k});
      random.fill(a);
      random.fill(b);
      const Tensor expected = row_by_row(a, b, ends);
      const bi_tensor va = a.view(), vb = b.view();
      std::vector<char> packed(bi_matmul_packed_size(experts, k, n, dtype));
      expect_ok(bi_matmul_pack(&vb, packed.data(), packed.size(), 3), "pack");
      for (int threads : bi_test::kThreads) {
        Tensor plain(dtype, {30, n}), from_packed(dtype, {30, n});
        const bi_tensor vplain = plain.view(), vfrom = from_packed.view();
        expect_ok(bi_grouped_matmul(&va, &vb, nullptr, 0, ends.data(), experts, &vplain, threads),
                  "unpacked");
        expect_ok(bi_grouped_matmul(&va, nullptr, packed.data(), packed.size(), ends.data(),
                                    experts, &vfrom, threads),
                  "packed");
        expect_same(plain, expected, "grouped, threads " + std::to_string(threads));
        expect_same(from_packed, expected, "grouped and packed");
      }
    }
}

// Rows that change expert change bits: the comparison above can tell experts apart.
void test_control_other_expert_differs() {
  Values random(12);
  Tensor a(BI_FLOAT32, {4, 16}), b(BI_FLOAT32, {2, 16, 8});
  random.fill(a);
  random.fill(b);
  Tensor first(BI_FLOAT32, {4, 8}), second(BI_FLOAT32, {4, 8});
  const bi_tensor va = a.view(), vb = b.view(), vf = first.view(), vs = second.view();
  const int64_t all_first[] = {4, 4}, all_second[] = {0, 4};
  expect_ok(bi_grouped_matmul(&va, &vb, nullptr, 0, all_first, 2, &vf, 2), "first");
  expect_ok(bi_grouped_matmul(&va, &vb, nullptr, 0, all_second, 2, &vs, 2), "second");
  expect(bi_test::differing(first, second) > 0, "control: another expert must differ");
}

void test_errors_name_the_argument() {
  Tensor a(BI_FLOAT32, {4, 16}), b(BI_FLOAT32, {2, 16, 8}), out(BI_FLOAT32, {4, 8});
  const bi_tensor va = a.view(), vb = b.view(), vo = out.view();
  const int64_t good[] = {1, 4}, falling[] = {5, 4}, few[] = {1, 3};
  const bi_status bad = BI_INVALID_ARGUMENT;
  auto call = [&](const bi_tensor *left, const bi_tensor *right, const int64_t *list, int64_t count,
                  const bi_tensor *to) {
    return bi_grouped_matmul(left, right, nullptr, 0, list, count, to, 1);
  };
  expect_ok(call(&va, &vb, good, 2, &vo), "grouped");
  expect_error(call(nullptr, &vb, good, 2, &vo), bad, "a:");
  expect_error(call(&va, nullptr, good, 2, &vo), bad, "b, packed:");
  expect_error(call(&va, &vb, falling, 2, &vo), bad, "group_list:");
  expect_error(call(&va, &vb, few, 2, &vo), bad, "group_list:");
  expect_error(call(&va, &vb, nullptr, 2, &vo), bad, "group_list:");
  expect_error(call(&va, &vb, good, -1, &vo), bad, "experts:");
  expect_error(call(&va, &va, good, 2, &vo), bad, "b:");
  expect_error(call(&va, &vb, good, 2, &va), bad, "out:");
}

void test_no_rows() {
  Tensor a(BI_BFLOAT16, {0, 16}), b(BI_BFLOAT16, {2, 16, 8}), out(BI_BFLOAT16, {0, 8});
  const bi_tensor va = a.view(), vb = b.view(), vo = out.view();
  const int64_t none[] = {0, 0};
  expect_ok(bi_grouped_matmul(&va, &vb, nullptr, 0, none, 2, &vo, 4), "no rows");
}

void all() {
  test_rows_are_matmuls();
  test_control_other_expert_differs();
  test_errors_name_the_argument();
  test_no_rows();
}

}  // namespace

int main() { return bi_test::finish(all); }
