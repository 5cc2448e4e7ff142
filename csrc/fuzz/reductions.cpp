// SPDX-License-Identifier: Apache-2.0
//
// bi_reduce_sum and bi_reduce_mean (csrc/ops/reduce_sum/README.md, reduce_mean/README.md).
#include <algorithm>
#include <numeric>

#include "arguments.h"
#include "operators.h"
#include "shapes.h"
#include "sums.h"

namespace bi_fuzz {
namespace {

Expected expected_sum(const std::vector<double> &terms, bool mean) {
  const auto n = static_cast<int64_t>(terms.size());
  Real sum = ordered_sum(n, [&](Real lane, int64_t i) {
    return add(lane, Real::exactly(terms[static_cast<size_t>(i)]));
  });
  double exact = 0.0, size = 0.0;
  for (const double x : terms) {
    exact += x;
    size += std::fabs(x);
  }
  const double unit = kFloat32.unit();
  double error = 70 * unit * size + unit * std::fabs(exact);
  if (mean) {
    const auto count = static_cast<double>(n);
    sum = divide(sum, Real::exactly(count));
    exact /= count;
    error = error / count + unit * std::fabs(exact) + kFloat32.tiny();
  }
  return {sum, exact, error};
}

Spoilt spoil_dims(Random &random, size_t rank, std::vector<int32_t> *dims, int32_t *count,
                  const int32_t **pointer) {
  switch (random.below(3)) {
    case 0:
      *count = random.one_of<int32_t>({-1, INT32_MIN});
      return {"ndims of " + std::to_string(*count), {"dims", "ndims"}};
    case 1:
      if (dims->empty()) return {};
      *pointer = nullptr;
      return {"dims of NULL", {"dims"}};
    default:
      if (dims->empty()) return {};
      dims->back() =
          dims->size() > 1 && random.percent(50) ? dims->front() : wrong_dim(random, rank);
      return {"a dimension that x lacks, or twice", {"dims"}};
  }
}

// Integers are summed modulo 2^64, into int64.
void compare_integers(Report &report, const Tensor &x, const std::vector<int64_t> &row_of,
                      const Tensor &out) {
  std::vector<uint64_t> sums(static_cast<size_t>(out.count()));
  for (int64_t i = 0; i < x.count(); ++i)
    sums[static_cast<size_t>(row_of[static_cast<size_t>(i)])] +=
        static_cast<uint64_t>(x.get_integer(i));
  for (int64_t i = 0; i < out.count(); ++i) {
    const auto expected = static_cast<int64_t>(sums[static_cast<size_t>(i)]);
    ++report.elements;
    if (out.get_integer(i) != expected)
      report.finding("out, element " + std::to_string(i) + ": expected " +
                     std::to_string(expected) + ", found " + std::to_string(out.get_integer(i)));
  }
}

void fuzz_reduction(Random &random, Report &report, bool mean) {
  const bool integers = !mean && random.percent(20);
  const int32_t dtype =
      integers ? random.one_of<int32_t>({BI_INT32, BI_INT64}) : random_dtype(random);
  const Shape shape = random_shape(random);
  const Tensor x = random_input(random, dtype, shape, static_cast<int>(random.between(-1, 4)));
  std::vector<int32_t> all(std::max<size_t>(shape.size(), 1)), dims;
  std::iota(all.begin(), all.end(), 0);
  std::vector<bool> reduced(all.size(), false);
  Shape out_shape = shape;
  while (!all.empty() && random.percent(60)) {
    const auto pick = all.begin() + random.below(static_cast<int64_t>(all.size()));
    const auto d = static_cast<size_t>(*pick);
    dims.push_back(random_dim(random, shape.size(), *pick));
    reduced[d] = true;
    if (!shape.empty()) out_shape[d] = 1;
    all.erase(pick);
  }
  const int32_t out_dtype = integers ? BI_INT64 : random.percent(30) ? BI_FLOAT32 : dtype;
  Tensor out = random_output(random, out_dtype, out_shape);
  report.describe("x", x);
  report.describe("out", out);
  report.describe("dims=" + text_of(Shape(dims.begin(), dims.end())));

  std::vector<Argument> arguments;
  arguments.emplace_back("x", x);
  arguments.emplace_back("out", out);
  arguments[0].tied = false;  // reduced extents are x's alone
  for (Argument &argument : arguments) argument.integers = !mean;
  int threads = random_threads(random);
  auto count = static_cast<int32_t>(dims.size());
  const int32_t *pointer = dims.data();
  Spoilt spoilt;
  if (random.percent(20))
    spoilt = random.percent(30) ? spoil_dims(random, shape.size(), &dims, &count, &pointer)
                                : spoil(random, arguments, &threads);
  if (spoilt.done()) spoilt.names.push_back("dims");
  const bi_status status = (mean ? bi_reduce_mean : bi_reduce_sum)(
      arguments[0].pointer(), pointer, count, arguments[1].pointer(), threads);
  report.untouched("x", x, true);
  if (!report.returned(status, spoilt, {{"out", &out}})) return;

  // Each element of x goes to the row of its output, in row-major order.
  std::vector<int64_t> row_of(static_cast<size_t>(x.count()));
  for (int64_t i = 0; i < x.count(); ++i) {
    int64_t row = 0, step = 1, rest = i;
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) {
      if (reduced[d]) continue;
      row += rest % shape[d] * step;
      step *= shape[d];
    }
    row_of[static_cast<size_t>(i)] = row;
  }
  if (integers) return compare_integers(report, x, row_of, out);
  std::vector<std::vector<double>> rows(static_cast<size_t>(out.count()));
  for (int64_t i = 0; i < x.count(); ++i)
    rows[static_cast<size_t>(row_of[static_cast<size_t>(i)])].push_back(x.get(i));
  for (int64_t i = 0; i < out.count(); ++i)
    report.element("out", out, i, expected_sum(rows[static_cast<size_t>(i)], mean));
}

}  // namespace

void fuzz_reduce_sum(Random &random, Report &report) { fuzz_reduction(random, report, false); }
void fuzz_reduce_mean(Random &random, Report &report) { fuzz_reduction(random, report, true); }

}  // namespace bi_fuzz
