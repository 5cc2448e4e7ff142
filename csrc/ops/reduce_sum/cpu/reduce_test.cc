// SPDX-License-Identifier: Apache-2.0
//
// reduce_sum and reduce_mean against their numeric contract.
#include <numeric>

#include "testing.h"

namespace {

using namespace bi_test;

constexpr int64_t kLengths[] = {0,  1,    2,    15,   16,   17,   63,    64,
                                65, 1000, 4095, 4096, 4097, 8192, 20011, 151936};

Tensor reduce(Tensor &x, const std::vector<int32_t> &dims, int threads, bool mean = false,
              int32_t out_dtype = BI_FLOAT32) {
  Shape shape = x.shape;
  for (int32_t d : dims) shape[static_cast<size_t>(d)] = 1;
  Tensor out(out_dtype, shape);
  const bi_tensor vx = x.view(), vo = out.view();
  const auto n = static_cast<int32_t>(dims.size());
  expect_ok(mean ? bi_reduce_mean(&vx, dims.data(), n, &vo, threads)
                 : bi_reduce_sum(&vx, dims.data(), n, &vo, threads),
            mean ? "bi_reduce_mean" : "bi_reduce_sum");
  return out;
}

// The contract as scalar code; `block` and `lanes` other than 4096 and 64 are negative controls.
float scheduled_sum(const std::vector<float> &x, size_t block = 4096, size_t lanes = 64) {
  float sum = 0, error = 0;
  for (size_t first = 0; first == 0 || first < x.size(); first += block) {
    std::vector<float> lane(lanes, 0.0f);
    for (size_t i = first; i < std::min(x.size(), first + block); ++i)
      lane[(i - first) % lanes] += x[i];
    for (size_t half = lanes / 2; half > 0; half /= 2)
      for (size_t l = 0; l < half; ++l) lane[l] += lane[l + half];
    const float t = sum + lane[0];
    const float z = t - sum;
    error += (sum - (t - z)) + (lane[0] - z);
    sum = t;
  }
  return std::isfinite(sum) ? sum + error : sum;
}

void test_contract() {
  Values values(1);
  int64_t controls_differ = 0;
  for (int32_t dtype : kDtypes)
    for (int64_t n : kLengths) {
      Tensor x = values.tensor(dtype, {3, n});
      Tensor sum = reduce(x, {1}, 2);
      Tensor mean = reduce(x, {1}, 2, true);
      record(sum);
      record(mean);
      for (int64_t r = 0; r < 3; ++r) {
        std::vector<float> row;
        double exact = 0, magnitude = 0;
        for (int64_t i = 0; i < n; ++i) {
          row.push_back(x.get(r * n + i));
          exact += row.back();
          magnitude += std::fabs(row.back());
        }
        const std::string what = "length " + std::to_string(n);
        const float expected = scheduled_sum(row);
        expect(bits(sum.get(r)) == bits(expected), "sum follows the schedule, " + what);
        expect(bits(mean.get(r)) == bits(expected / static_cast<float>(n)),
               "mean is sum / n, " + what);
        expect(std::fabs(sum.get(r) - exact) <= (70 * magnitude + std::fabs(exact)) * kUnit * 1.01,
               "error within the stated bound, " + what);
        controls_differ += bits(scheduled_sum(row, 2048)) != bits(expected);
        controls_differ += bits(scheduled_sum(row, 4096, 32)) != bits(expected);
        controls_differ += bits(std::accumulate(row.begin(), row.end(), 0.0f)) != bits(expected);
      }
    }
  expect(controls_differ > 0, "another block, lane count or a plain sum differs somewhere");
}

// One row, wherever it lies, gives one result.
void test_layouts_neighbours_threads() {
  Values values(2);
  for (int32_t dtype : kDtypes)
    for (int64_t n : {5, 64, 300, 9000}) {
      Tensor alone = values.tensor(dtype, {1, n});
      Tensor expected = reduce(alone, {1}, 1);
      for (int64_t rows : {1, 7, 16, 33, 70}) {
        Tensor many = values.tensor(dtype, {rows, n});
        const int64_t r = values.below(rows);
        for (int64_t i = 0; i < n; ++i) many.set(r * n + i, alone.get(i));
        Tensor contiguous = reduce(many, {1}, 1);
        record(contiguous);
        expect(bits(contiguous.get(r)) == bits(expected.get(0)), "neighbours do not matter");
        const Shape layouts[] = {{n, 1}, {1, rows}, {1, rows + 3}, {2 * n + 1, 2}, {n + 5, 1}};
        for (const Shape &stride : layouts) {
          Tensor x = laid_out(many, stride);
          for (int threads : kThreads)
            expect_same(reduce(x, {1}, threads), contiguous, "strides and threads do not matter");
        }
      }
    }
}

// Several dimensions form one row in row-major order, in whatever order they are listed.
void test_dimension_sets() {
  Values values(3);
  Tensor x = values.tensor(BI_FLOAT32, {6, 40, 35});
  const std::vector<std::vector<int32_t>> sets = {{},     {0},    {1},    {2},      {0, 1},
                                                  {1, 2}, {0, 2}, {2, 0}, {0, 1, 2}};
  for (const auto &dims : sets) {
    // Reduced dimensions moved to the end by a copy, then one contiguous row per output.
    std::vector<int> order;
    auto reduced = [&](int d) {
      return std::find(dims.begin(), dims.end(), static_cast<int32_t>(d)) != dims.end();
    };
    for (int d = 0; d < 3; ++d)
      if (!reduced(d)) order.push_back(d);
    const size_t kept = order.size();
    for (int d = 0; d < 3; ++d)
      if (reduced(d)) order.push_back(d);
    int64_t outputs = 1, length = 1;
    Shape from_shape, from_stride;
    for (size_t i = 0; i < 3; ++i) {
      const auto d = static_cast<size_t>(order[i]);
      (i < kept ? outputs : length) *= x.shape[d];
      from_shape.push_back(x.shape[d]);
      from_stride.push_back(x.stride[d]);
    }
    Tensor permuted = x;
    permuted.shape = from_shape;
    permuted.stride = from_stride;
    Tensor rows(BI_FLOAT32, {outputs, length});
    for (int64_t i = 0; i < rows.count(); ++i) rows.set(i, permuted.get(i));
    Tensor expected = reduce(rows, {1}, 1);
    record(expected);
    for (const Shape &stride :
         {x.stride, Shape{1, 6, 240}, Shape{40, 1, 240}, Shape{1500, 36, 1}}) {
      Tensor y = laid_out(x, stride);
      for (int threads : kThreads)
        expect_same(reduce(y, dims, threads), expected, "a set of dimensions is one row");
    }
  }
}

void test_special_values() {
  Values values(4);
  const float inf = HUGE_VALF;
  Tensor x = values.tensor(BI_FLOAT32, {6, 5000});
  x.set(0 * 5000 + 4500, inf);
  x.set(1 * 5000 + 17, -inf);
  x.set(2 * 5000 + 17, inf);
  x.set(2 * 5000 + 4800, -inf);
  x.set(3 * 5000 + 4999, NAN);
  for (int64_t i = 0; i < 5000; ++i) x.set(4 * 5000 + i, 3e38f);
  Tensor s = reduce(x, {1}, 1);
  expect(s.get(0) == inf && s.get(1) == -inf && std::isnan(s.get(2)) && std::isnan(s.get(3)) &&
             s.get(4) == inf && std::isfinite(s.get(5)),
         "infinities and NaN propagate as in a plain sum");
  Tensor none(BI_FLOAT32, {4, 0});
  Tensor zero = reduce(none, {1}, 2);
  Tensor nan = reduce(none, {1}, 2, true);
  for (int64_t i = 0; i < 4; ++i)
    expect(bits(zero.get(i)) == 0 && std::isnan(nan.get(i)), "no terms: sum 0, mean NaN");
  Tensor empty(BI_FLOAT32, {0, 3});
  reduce(empty, {1}, 2);
  for (int32_t dtype : kDtypes) {
    Tensor big = values.tensor(dtype, {3, 700});
    Tensor wide = reduce(big, {1}, 1);
    Tensor narrow = reduce(big, {1}, 1, false, dtype);
    for (int64_t i = 0; i < 3; ++i)
      expect(narrow.get(i) == rounded(wide.get(i), dtype), "rounded once, at the end");
  }
}

// Modulo 2^64, whatever the strides are.
template <typename T>
void test_integers(int32_t dtype) {
  std::mt19937_64 engine(5);
  std::vector<T> terms(3 * 40 * 50);
  for (T &term : terms) term = static_cast<T>(engine());
  const int64_t shape[] = {3, 40, 50}, strides[][3] = {{2000, 50, 1}, {1, 150, 3}};
  const int64_t out_shape[] = {3, 1, 1}, out_stride[] = {2, 1, 1};
  const int32_t dims[] = {2, 1};
  for (const auto &stride : strides)
    for (int threads : kThreads) {
      std::vector<int64_t> sums(6, 77);
      const bi_tensor x = {terms.data(), shape, stride, 3, dtype};
      const bi_tensor out = {sums.data(), out_shape, out_stride, 3, BI_INT64};
      expect_ok(bi_reduce_sum(&x, dims, 2, &out, threads), "a sum of integers");
      for (int64_t i = 0; i < 3; ++i) {
        uint64_t expected = 0;
        for (int64_t j = 0; j < 40; ++j)
          for (int64_t k = 0; k < 50; ++k) {
            const int64_t term =
                terms[static_cast<size_t>(i * stride[0] + j * stride[1] + k * stride[2])];
            expected += static_cast<uint64_t>(term);
          }
        expect(static_cast<uint64_t>(sums[static_cast<size_t>(2 * i)]) == expected &&
                   sums[static_cast<size_t>(2 * i + 1)] == 77,
               "the sum of integers modulo 2^64");
      }
      expect_error(bi_reduce_mean(&x, dims, 2, &out, 1), BI_UNSUPPORTED_DTYPE, "x:");
    }
}

void test_errors() {
  Tensor x(BI_FLOAT32, {2, 3}), out(BI_FLOAT32, {2, 1});
  bi_tensor vx = x.view(), vo = out.view(), vh = vx;
  vh.dtype = 99;
  const int32_t one[] = {1}, twice[] = {1, -1}, far[] = {2};
  expect_error(bi_reduce_sum(nullptr, one, 1, &vo, 1), BI_INVALID_ARGUMENT, "x:");
  expect_error(bi_reduce_sum(&vh, one, 1, &vo, 1), BI_UNSUPPORTED_DTYPE, "x:");
  vh.dtype = BI_INT64;
  expect_error(bi_reduce_sum(&vh, one, 1, &vo, 1), BI_UNSUPPORTED_DTYPE, "out:");
  expect_error(bi_reduce_sum(&vx, far, 1, &vo, 1), BI_INVALID_ARGUMENT, "dims:");
  expect_error(bi_reduce_sum(&vx, twice, 2, &vo, 1), BI_INVALID_ARGUMENT, "dims:");
  expect_error(bi_reduce_sum(&vx, nullptr, 1, &vo, 1), BI_INVALID_ARGUMENT, "dims:");
  expect_error(bi_reduce_mean(&vx, one, 1, &vx, 1), BI_INVALID_ARGUMENT, "out:");
  expect_error(bi_reduce_mean(&vx, one, 1, &vo, 0), BI_INVALID_ARGUMENT, "threads:");
  vx.data = nullptr;
  expect_error(bi_reduce_sum(&vx, one, 1, &vo, 1), BI_INVALID_ARGUMENT, "x:");
}

void tests() {
  test_contract();
  test_layouts_neighbours_threads();
  test_dimension_sets();
  test_special_values();
  test_integers<int32_t>(BI_INT32);
  test_integers<int64_t>(BI_INT64);
  test_errors();
}

}  // namespace

int main() { return finish(tests); }
