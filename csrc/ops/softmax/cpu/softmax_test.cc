// SPDX-License-Identifier: Apache-2.0
//
// softmax and log_softmax against their numeric contract.
#include "testing.h"

namespace {

using namespace bi_test;

constexpr int64_t kLengths[] = {1, 2, 15, 16, 17, 63, 65, 1000, 4096, 4097, 20011, 151936};

Tensor softmax(Tensor &x, int32_t dim, int threads, bool log, int32_t out_dtype = BI_FLOAT32,
               Shape out_stride = {}) {
  if (out_stride.empty()) out_stride = Tensor::row_major(x.shape);
  Tensor out(out_dtype, x.shape, out_stride);
  const bi_tensor vx = x.view(), vo = out.view();
  expect_ok(log ? bi_log_softmax(&vx, dim, &vo, threads) : bi_softmax(&vx, dim, &vo, threads),
            log ? "bi_log_softmax" : "bi_softmax");
  return out;
}

void test_error_bound() {
  Values values(1);
  int64_t narrow_differs = 0;
  for (int32_t dtype : kDtypes)
    for (int64_t n : kLengths)
      for (float scale : {1.0f, 30.0f}) {
        Tensor x = values.tensor(dtype, {2, n}, scale);
        Tensor p = softmax(x, 1, 2, false);
        Tensor l = softmax(x, 1, 2, true);
        record(p);
        record(l);
        for (int64_t r = 0; r < 2; ++r) {
          double max = -HUGE_VAL, min = HUGE_VAL, sum = 0;
          for (int64_t i = 0; i < n; ++i) {
            max = std::max<double>(max, x.get(r * n + i));
            min = std::min<double>(min, x.get(r * n + i));
          }
          for (int64_t i = 0; i < n; ++i) sum += std::exp(x.get(r * n + i) - max);
          for (int64_t i = 0; i < n; ++i) {
            const double shifted = x.get(r * n + i) - max;
            const double y = std::exp(shifted) / sum;
            const double z = shifted - std::log(sum);
            // The smallest results are subnormal, with an absolute error.
            expect(std::fabs(p.get(r * n + i) - y) <=
                       (std::fabs(shifted) + std::log(n) + 76) * kUnit * y * 1.01 + 0x1p-148,
                   "softmax within the stated bound, length " + std::to_string(n));
            expect(std::fabs(l.get(r * n + i) - z) <= (2 * std::fabs(shifted) + std::fabs(z) +
                                                       std::log(sum) + 74 + 2 * (max - min)) *
                                                          kUnit,
                   "log_softmax within the stated bound, length " + std::to_string(n));
            narrow_differs += bits(p.get(r * n + i)) != bits(static_cast<float>(y));
          }
        }
      }
  expect(narrow_differs > 0, "fp32 results are not just the rounded exact ones");
}

void test_layouts_neighbours_threads() {
  Values values(2);
  for (int32_t dtype : kDtypes)
    for (bool log : {false, true})
      for (int64_t n : {3, 64, 300, 13000}) {
        Tensor alone = values.tensor(dtype, {1, n});
        Tensor expected = softmax(alone, 1, 1, log, dtype);
        for (int64_t rows : {1, 9, 33}) {
          Tensor many = values.tensor(dtype, {rows, n});
          const int64_t at = values.below(rows);
          for (int64_t i = 0; i < n; ++i) many.set(at * n + i, alone.get(i));
          Tensor contiguous = softmax(many, 1, 1, log, dtype);
          record(contiguous);
          for (int64_t i = 0; i < n; ++i)
            expect(bits(contiguous.get(at * n + i)) == bits(expected.get(i)),
                   "neighbours do not matter");
          const Shape layouts[] = {{n, 1}, {1, rows}, {1, rows + 3}, {2 * n + 1, 2}};
          for (const Shape &stride : layouts) {
            Tensor x = laid_out(many, stride);
            for (int threads : kThreads) {
              expect_same(softmax(x, -1, threads, log, dtype), contiguous, "strides, threads");
              expect_same(softmax(x, 1, threads, log, dtype, stride), contiguous, "out's strides");
            }
          }
        }
      }
}

void test_middle_dimension() {
  Values values(3);
  Tensor x = values.tensor(BI_FLOAT32, {3, 50, 41});
  Tensor rows(BI_FLOAT32, {3, 41, 50});
  for (int64_t a = 0; a < 3; ++a)
    for (int64_t b = 0; b < 50; ++b)
      for (int64_t c = 0; c < 41; ++c)
        rows.set((a * 41 + c) * 50 + b, x.get((a * 50 + b) * 41 + c));
  Tensor middle = softmax(x, 1, 3, false);
  Tensor last = softmax(rows, 2, 1, false);
  int64_t different = 0;
  for (int64_t a = 0; a < 3; ++a)
    for (int64_t b = 0; b < 50; ++b)
      for (int64_t c = 0; c < 41; ++c)
        different +=
            bits(middle.get((a * 50 + b) * 41 + c)) != bits(last.get((a * 41 + c) * 50 + b));
  expect(different == 0, "a dimension in the middle gives the bits of the last one");
}

// As torch: a row with NaN, with +inf, or all -inf is NaN; -inf beside numbers is no probability.
void test_special_values() {
  const float inf = HUGE_VALF;
  for (int64_t n : {4, 40, 5000}) {
    Tensor x(BI_FLOAT32, {5, n});
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, static_cast<float>(i % 7));
    x.set(0 * n + n - 1, NAN);
    x.set(1 * n + 1, inf);
    for (int64_t i = 0; i < n; ++i) x.set(2 * n + i, -inf);
    x.set(3 * n + 2, -inf);
    for (int64_t i = 0; i < n; ++i) x.set(4 * n + i, i == 0 ? 0.0f : -inf);
    for (const Shape &stride : {Shape{n, 1}, Shape{1, 5}}) {
      Tensor y = laid_out(x, stride);
      for (int threads : {1, 3}) {
        Tensor p = softmax(y, 1, threads, false);
        Tensor l = softmax(y, 1, threads, true);
        for (int64_t i = 0; i < 3 * n; ++i)
          expect(std::isnan(p.get(i)) && std::isnan(l.get(i)), "NaN, +inf and all -inf give NaN");
        expect(p.get(3 * n + 2) == 0.0f && l.get(3 * n + 2) == -inf && p.get(3 * n) > 0.0f,
               "-inf beside numbers");
        expect(p.get(4 * n) == 1.0f && l.get(4 * n) == 0.0f && p.get(4 * n + 1) == 0.0f,
               "one number among -inf");
      }
    }
  }
  Tensor scalar(BI_FLOAT32, {});
  scalar.set(0, 3.0f);
  expect(softmax(scalar, 0, 1, false).get(0) == 1.0f, "a scalar is a row of one");
  Tensor empty(BI_FLOAT32, {4, 0});
  softmax(empty, 1, 2, false);
}

void test_errors() {
  Tensor x(BI_FLOAT32, {2, 3}), out(BI_BFLOAT16, {2, 3}), small(BI_FLOAT32, {2, 1});
  bi_tensor vx = x.view(), vo = out.view(), vs = small.view();
  expect_error(bi_softmax(&vx, 1, &vo, 1), BI_UNSUPPORTED_DTYPE, "out:");
  expect_error(bi_softmax(&vx, 1, &vs, 1), BI_INVALID_ARGUMENT, "out:");
  expect_error(bi_softmax(&vx, 2, &vx, 1), BI_INVALID_ARGUMENT, "dim:");
  expect_error(bi_log_softmax(&vx, -3, &vx, 1), BI_INVALID_ARGUMENT, "dim:");
  vx.dtype = BI_INT32;
  expect_error(bi_log_softmax(&vx, 1, &vx, 1), BI_UNSUPPORTED_DTYPE, "x:");
}

void tests() {
  test_error_bound();
  test_layouts_neighbours_threads();
  test_middle_dimension();
  test_special_values();
  test_errors();
}

}  // namespace

int main() { return finish(tests); }
