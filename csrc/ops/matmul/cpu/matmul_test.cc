// SPDX-License-Identifier: Apache-2.0
//
// matmul against its numeric contract, bit for bit.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "batch_invariant.h"
#include "chain.h"

namespace {

using bi_test::differing;
using bi_test::expect;
using bi_test::expect_error;
using bi_test::expect_ok;
using bi_test::expect_same;
using bi_test::kDtypes;
using bi_test::kThreads;
using bi_test::record;
using chain::Order;
using chain::Tensor;
using chain::Values;

std::string text(const std::vector<int64_t> &shape) {
  std::string s = "[";
  for (size_t d = 0; d < shape.size(); ++d) s += (d > 0 ? ", " : "") + std::to_string(shape[d]);
  return s + "]";
}

Tensor out_of(const Tensor &a, const Tensor &b) {
  std::vector<int64_t> shape = a.shape;
  shape.back() = b.cols();
  return Tensor(a.dtype, shape);
}

Tensor matmul(Tensor &a, Tensor &b, Tensor *bias, int threads) {
  Tensor out = out_of(a, b);
  const bi_tensor va = a.view(), vb = b.view(), vo = out.view();
  const bi_tensor vbias = bias != nullptr ? bias->view() : bi_tensor{};
  expect_ok(bi_matmul(&va, &vb, bias != nullptr ? &vbias : nullptr, &vo, threads), "bi_matmul");
  return out;
}

std::vector<char> pack(Tensor &b, int threads) {
  const int64_t experts = b.batch();
  std::vector<char> packed(bi_matmul_packed_size(experts, b.rows(), b.cols(), b.dtype));
  const bi_tensor vb = b.view();
  expect_ok(bi_matmul_pack(&vb, packed.data(), packed.size(), threads), "bi_matmul_pack");
  return packed;
}

Tensor matmul_packed(Tensor &a, Tensor &b, Tensor *bias, int threads) {
  const std::vector<char> packed = pack(b, threads);
  Tensor out = out_of(a, b);
  const bi_tensor va = a.view(), vo = out.view();
  const bi_tensor vbias = bias != nullptr ? bias->view() : bi_tensor{};
  expect_ok(bi_matmul_packed(&va, packed.data(), packed.size(), bias != nullptr ? &vbias : nullptr,
                             &vo, threads),
            "bi_matmul_packed");
  return out;
}

// b [K, N] as a linear layer's transposed weight, row-major, or with gaps in both directions.
Tensor weight(int32_t dtype, int64_t k, int64_t n, int64_t layout) {
  switch (layout) {
    case 0:
      return Tensor(dtype, {k, n}, {1, k});
    case 1:
      return Tensor(dtype, {k, n}, {n, 1});
    case 2:
      return Tensor(dtype, {k, n}, {1, k + 5});
    default:
      return Tensor(dtype, {k, n}, {2 * n + 1, 2});
  }
}

void test_random_shapes() {
  Values random(1);
  for (int round = 0; round < 60; ++round)
    for (int32_t dtype : kDtypes) {
      const int64_t m = 1 + random.below(round % 4 == 0 ? 40 : 9);
      const int64_t n = 1 + random.below(round % 3 == 0 ? 200 : 40);
      const int64_t k = 1 + random.below(round % 5 == 0 ? 1200 : 70);
      Tensor a = random.below(2) == 0 ? Tensor(dtype, {m, k}) : Tensor(dtype, {m, k}, {1, m + 3});
      Tensor b = weight(dtype, k, n, random.below(4));
      Tensor bias(dtype, {n}, {1 + random.below(3)});
      const bool tiny = round % 6 == 5;
      random.fill(a, tiny);
      random.fill(b, tiny);
      random.fill(bias, tiny);
      Tensor *maybe_bias = random.below(2) == 0 ? &bias : nullptr;
      const Tensor expected = chain::reference(a, b, maybe_bias, chain::order_of_library());
      // The same bits on every instruction set.
      if (dtype != BI_BFLOAT16) record(matmul(a, b, maybe_bias, 1));
      for (int threads : kThreads) {
        const std::string what = text(a.shape) + " x " + text(b.shape) + " strides " +
                                 text(b.stride) + " dtype " + std::to_string(dtype) + " threads " +
                                 std::to_string(threads) + (tiny ? " tiny" : "");
        expect_same(matmul(a, b, maybe_bias, threads), expected, what);
        expect_same(matmul_packed(a, b, maybe_bias, threads), expected, "packed " + what);
      }
    }
}

// More than one block of the reduced dimension, of rows, of panels; odd sizes.
void test_large() {
  Values random(2);
  for (int32_t dtype : kDtypes) {
    for (const std::vector<int64_t> &s :
         {std::vector<int64_t>{3, 4099, 131}, {300, 521, 67}, {530, 6, 65}, {2, 9001, 17}}) {
      Tensor a(dtype, {s[0], s[1]}), b = weight(dtype, s[1], s[2], 0);
      random.fill(a);
      random.fill(b);
      const Tensor expected = chain::reference(a, b, nullptr, chain::order_of_library());
      // Away from underflow the hardware's pairs are the same chain as everybody's.
      expect_same(chain::reference(a, b, nullptr, Order::flushed_pairs),
                  chain::reference(a, b, nullptr, Order::chain), "flushing in the normal range");
      for (int threads : {1, 3}) {
        expect_same(matmul(a, b, nullptr, threads), expected, "large " + text(a.shape));
        expect_same(matmul_packed(a, b, nullptr, threads), expected, "large " + text(a.shape));
      }
    }
  }
}

// The same values in reverse row order, one row alone, and in two parts.
void test_rows_do_not_matter() {
  Values random(3);
  for (int32_t dtype : kDtypes) {
    const int64_t m = 29, k = 700, n = 150;
    Tensor a(dtype, {m, k}), b = weight(dtype, k, n, 0);
    random.fill(a);
    random.fill(b);
    const Tensor whole = matmul(a, b, nullptr, 2);
    Tensor reversed = a;
    for (int64_t r = 0; r < m; ++r)
      for (int64_t c = 0; c < k; ++c) reversed.set(0, r, c, a.get(0, m - 1 - r, c));
    const Tensor turned = matmul(reversed, b, nullptr, 3);
    for (int64_t r = 0; r < m; ++r) {
      Tensor row(dtype, {1, k});
      for (int64_t c = 0; c < k; ++c) row.set(0, 0, c, a.get(0, r, c));
      const Tensor alone = matmul(row, b, nullptr, 1);
      Tensor from_whole(dtype, {1, n}), from_turned(dtype, {1, n});
      for (int64_t c = 0; c < n; ++c) {
        from_whole.set(0, 0, c, whole.get(0, r, c));
        from_turned.set(0, 0, c, turned.get(0, m - 1 - r, c));
      }
      expect_same(alone, from_whole, "row alone");
      expect_same(alone, from_turned, "row in reversed order");
    }
  }
}

void test_batched() {
  Values random(4);
  for (int32_t dtype : kDtypes) {
    const int64_t batch = 3, m = 5, k = 33, n = 70;
    Tensor a(dtype, {batch, m, k});
    Tensor b(dtype, {batch, k, n}, {k * n + 1, 1, k});
    Tensor shared(dtype, {batch, k, n}, {0, n, 1});  // broadcast
    random.fill(a);
    random.fill(b);
    random.fill(shared);
    for (Tensor *right : {&b, &shared})
      for (int threads : kThreads)
        expect_same(matmul(a, *right, nullptr, threads),
                    chain::reference(a, *right, nullptr, chain::order_of_library()), "batched");
  }
}

// What the test could miss: a sum over K in two halves has other bits, so equality above means
// something.
void test_control_split_k_differs() {
  Values random(5);
  for (int32_t dtype : kDtypes) {
    // bf16 hides most differences of its fp32 sums: enough elements to show some.
    const int64_t m = 16, k = 1024, n = 1200;
    Tensor a(dtype, {m, k}), b = weight(dtype, k, n, 1);
    random.fill(a);
    random.fill(b);
    Tensor split(dtype, {m, n});
    for (int64_t r = 0; r < m; ++r)
      for (int64_t c = 0; c < n; ++c) {
        float half[2] = {0, 0};
        for (int64_t j = 0; j < k; ++j)
          half[j >= k / 2] = std::fma(a.get(0, r, j), b.get(0, j, c), half[j >= k / 2]);
        split.set(0, r, c, half[0] + half[1]);
      }
    expect(differing(split, matmul(a, b, nullptr, 1)) > 0, "control: split K must differ");
  }
}

// Around the smallest normal number the hardware's pairs differ from the plain chain: the README
// says so, and the comparisons above would notice.
void test_control_flushing_differs() {
  Values random(10);
  Tensor a(BI_BFLOAT16, {4, 64}), b = weight(BI_BFLOAT16, 64, 40, 0);
  random.fill(a, true);
  random.fill(b, true);
  expect(differing(chain::reference(a, b, nullptr, Order::chain),
                   chain::reference(a, b, nullptr, Order::flushed_pairs)) > 0,
         "control: flushing must differ");
}

// Where large terms cancel, what a tile's even and odd sums round off is not what the chain does.
void test_control_tiles_differ() {
  Values random(12);
  Tensor a(BI_BFLOAT16, {4, 64}), b = weight(BI_BFLOAT16, 64, 40, 0);
  random.fill(a);
  random.fill(b);
  for (int64_t r = 0; r < 4; ++r) a.set(0, r, 0, 512.0f), a.set(0, r, 63, -512.0f);
  for (int64_t c = 0; c < 40; ++c) b.set(0, 0, c, 1.0f), b.set(0, 63, c, 1.0f);
  expect(differing(chain::reference(a, b, nullptr, Order::tiles),
                   chain::reference(a, b, nullptr, Order::chain)) > 0,
         "control: tiles must differ");
  expect_same(matmul(a, b, nullptr, 2), chain::reference(a, b, nullptr, chain::order_of_library()),
              "cancelling terms");
}

// Zeros that complete a panel or a pair meet no infinity; signs of zero follow IEEE.
void test_special_values() {
  const float inf = std::numeric_limits<float>::infinity();
  for (int32_t dtype : kDtypes)
    for (int64_t k : {1, 2, 3, 257, 513}) {
      const int64_t m = 7, n = 19;
      Tensor a(dtype, {m, k}), b = weight(dtype, k, n, 0);
      Values random(6);
      random.fill(a);
      random.fill(b);
      a.set(0, 0, k - 1, inf);
      a.set(0, 1, k - 1, -inf);
      a.set(0, 2, 0, std::nanf(""));
      b.set(0, k - 1, 4, inf);
      for (int64_t j = 0; j < k; ++j) a.set(0, 5, j, -0.0f);
      for (int64_t j = 0; j < k; ++j) b.set(0, j, 5, 0.0f);
      const Tensor expected = chain::reference(a, b, nullptr, chain::order_of_library());
      const Tensor found = matmul(a, b, nullptr, 2);
      expect_same(found, expected, "special values");
      expect_same(matmul_packed(a, b, nullptr, 2), expected, "special values, packed");
      expect(std::isinf(found.get(0, 0, 0)) && std::isnan(found.get(0, 2, 3)),
             "infinity and NaN reach the output");
      expect(!std::isnan(found.get(0, 3, 18)), "no NaN comes from padding");
    }
}

// The sum is an fp32: only the result meets fp16's range, and rounds once.
void test_float16_range() {
  const float inf = std::numeric_limits<float>::infinity();
  const struct {
    float a[3], b[3], expected;
  } cases[] = {
      {{65504, 0, 0}, {1, 0, 0}, 65504},
      {{65504, 0, 0}, {2, 0, 0}, inf},
      {{65504, 65504, 1}, {2, -2, 3}, 3},  // beyond the range on the way
      {{65504, 15, 0}, {1, 1, 0}, 65504},  // below half a step
      {{65504, 16, 0}, {1, 1, 0}, inf},    // the tie to even
      {{-65504, 65504, 0}, {8, -8, 0}, -inf},
      {{0x1p-24f, 0, 0}, {1, 0, 0}, 0x1p-24f},  // the smallest operand
      {{0x1p-24f, 0x1p-24f, 0}, {0.5f, 0.25f, 0}, 0x1p-24f},
      {{0x1p-24f, 0, 0}, {0.5f, 0, 0}, 0},
      {{0x1p-24f, 0x1p-24f, 0}, {4096, 4096, 0}, 0x1p-11f},
  };
  for (const auto &c : cases) {
    Tensor a(BI_FLOAT16, {1, 3}), b = weight(BI_FLOAT16, 3, 1, 0);
    for (int64_t j = 0; j < 3; ++j) {
      a.set(0, 0, j, c.a[j]);
      b.set(0, j, 0, c.b[j]);
    }
    expect(matmul(a, b, nullptr, 1).get(0, 0, 0) == c.expected, "the range of float16");
    expect(matmul_packed(a, b, nullptr, 1).get(0, 0, 0) == c.expected, "the same, packed");
  }
}

void test_empty() {
  for (int32_t dtype : kDtypes) {
    Tensor a0(dtype, {0, 8}), b = weight(dtype, 8, 5, 0);
    expect(matmul(a0, b, nullptr, 2).count() == 0, "no rows");
    expect(matmul_packed(a0, b, nullptr, 2).count() == 0, "no rows, packed");
    Tensor a(dtype, {3, 8}), b0 = weight(dtype, 8, 0, 1);
    expect(matmul(a, b0, nullptr, 2).count() == 0, "no columns");
    expect(matmul_packed(a, b0, nullptr, 2).count() == 0, "no columns, packed");
    Tensor none(dtype, {3, 0}), no_k = weight(dtype, 0, 70, 1);
    Tensor bias(dtype, {70}, {1});
    Values(7).fill(bias);
    const Tensor zeros = matmul(none, no_k, nullptr, 2);
    const Tensor biased = matmul_packed(none, no_k, &bias, 2);
    for (int64_t r = 0; r < 3; ++r)
      for (int64_t c = 0; c < 70; ++c)
        expect(zeros.get(0, r, c) == 0 && biased.get(0, r, c) == bias.get(c), "K = 0");
  }
}

// Only the rows and columns of out are written.
void test_strided_out() {
  for (int32_t dtype : kDtypes) {
    const int64_t m = 9, k = 20, n = 33, gap = 40;
    Tensor a(dtype, {m, k}), b = weight(dtype, k, n, 0), out(dtype, {m, n}, {gap, 1});
    Values random(8);
    random.fill(a);
    random.fill(b);
    const bi_tensor va = a.view(), vb = b.view(), vo = out.view();
    expect_ok(bi_matmul(&va, &vb, nullptr, &vo, 2), "strided out");
    expect_same(out, chain::reference(a, b, nullptr, chain::order_of_library()), "strided out");
    for (int64_t i = 0; i < out.room(); ++i)
      if (i % gap >= n) expect(std::isnan(out.at_offset(i)), "the gap between rows is untouched");
  }
}

// An embedder's pool may run tasks in any order and all on one thread.
void run_backwards(int64_t tasks, int, bi_task task, void *arg) {
  for (int64_t i = tasks; i-- > 0;) task(arg, i);
}

void test_embedders_pool() {
  Values random(9);
  Tensor a(BI_FLOAT32, {50, 300}), b = weight(BI_FLOAT32, 300, 500, 0);
  random.fill(a);
  random.fill(b);
  const Tensor expected = matmul(a, b, nullptr, 1);
  bi_set_run(run_backwards);
  expect_same(matmul(a, b, nullptr, 4), expected, "another pool");
  bi_set_run(nullptr);
  expect_same(matmul(a, b, nullptr, 4), expected, "the default pool again");
}

void test_errors_name_the_argument() {
  Tensor a(BI_FLOAT32, {3, 8}), b = weight(BI_FLOAT32, 8, 5, 0), out(BI_FLOAT32, {3, 5});
  Tensor bias(BI_FLOAT32, {4}, {1}), half(BI_FLOAT16, {3, 8}), brain(BI_BFLOAT16, {3, 8});
  Tensor tall(BI_FLOAT32, {9, 5}), flat(BI_FLOAT32, {3, 5}, {1, 3}), vector(BI_FLOAT32, {8}, {1});
  const bi_tensor va = a.view(), vb = b.view(), vo = out.view(), vbias = bias.view();
  const bi_tensor vhalf = half.view(), vbrain = brain.view(), vtall = tall.view(),
                  vflat = flat.view(), vvector = vector.view();
  const bi_status bad = BI_INVALID_ARGUMENT;
  expect_error(bi_matmul(nullptr, &vb, nullptr, &vo, 1), bad, "a:");
  expect_error(bi_matmul(&va, nullptr, nullptr, &vo, 1), bad, "b:");
  expect_error(bi_matmul(&va, &vb, nullptr, nullptr, 1), bad, "out:");
  expect_error(bi_matmul(&va, &vb, nullptr, &vo, 0), bad, "threads:");
  expect_error(bi_matmul(&vvector, &vb, nullptr, &vo, 1), bad, "a:");
  expect_error(bi_matmul(&va, &vtall, nullptr, &vo, 1), bad, "b:");
  expect_error(bi_matmul(&va, &vb, &vbias, &vo, 1), bad, "bias:");
  expect_error(bi_matmul(&va, &vb, nullptr, &vflat, 1), bad, "out:");
  expect_error(bi_matmul(&va, &vb, nullptr, &va, 1), bad, "out:");
  expect_error(bi_matmul(&vhalf, &vb, nullptr, &vo, 1), bad, "b:");
  bi_tensor integers = va;
  integers.dtype = BI_INT32;
  expect_error(bi_matmul(&integers, &vb, nullptr, &vo, 1), BI_UNSUPPORTED_DTYPE, "a:");
  expect_error(bi_matmul(&vbrain, &vb, nullptr, &vo, 1), bad, "b:");
  const int64_t far_stride[] = {int64_t{1} << 62, 1};
  bi_tensor far = va;
  far.stride = far_stride;
  expect_error(bi_matmul(&far, &vb, nullptr, &vo, 1), bad, "a:");
  bi_tensor gone = vb;
  gone.data = nullptr;
  expect_error(bi_matmul(&va, &gone, nullptr, &vo, 1), bad, "b:");

  std::vector<char> packed = pack(b, 1);
  auto call = [&](const bi_tensor &left) {
    return bi_matmul_packed(&left, packed.data(), packed.size(), nullptr, &vo, 1);
  };
  expect_ok(call(va), "packed");
  expect_error(call(vtall), bad, "packed:");
  expect_error(call(vbrain), bad, "packed:");
  expect_error(bi_matmul_packed(&va, nullptr, 64, nullptr, &vo, 1), bad, "packed:");
  expect_error(bi_matmul_packed(&va, packed.data(), packed.size() - 1, nullptr, &vo, 1), bad,
               "packed:");
  expect_error(bi_matmul_pack(&vb, packed.data(), packed.size() + 4, 1), bad, "packed:");
  packed[0] = 'x';
  expect_error(call(va), bad, "packed:");
  expect(bi_matmul_packed_size(1, int64_t{1} << 40, int64_t{1} << 40, BI_FLOAT32) == 0,
         "an overflowing size is 0");
  expect(bi_matmul_packed_size(1, 8, 8, BI_INT32) == 0, "integers are not packed");
}

void all() {
  test_random_shapes();
  test_large();
  test_rows_do_not_matter();
  test_batched();
  test_control_split_k_differs();
  test_control_flushing_differs();
  test_control_tiles_differ();
  test_special_values();
  test_float16_range();
  test_empty();
  test_strided_out();
  test_embedders_pool();
  test_errors_name_the_argument();
}

}  // namespace

int main() { return bi_test::finish(all); }
