// SPDX-License-Identifier: Apache-2.0
//
// bi_softmax and bi_log_softmax (csrc/ops/softmax/README.md, log_softmax/README.md).
#include <algorithm>

#include "arguments.h"
#include "operators.h"
#include "shapes.h"
#include "sums.h"

namespace bi_fuzz {
namespace {

std::vector<Expected> expected_row(const std::vector<double> &x, bool log) {
  Real max = Real::exactly(-HUGE_VAL);
  for (const double element : x) max = larger(max, Real::exactly(element));
  std::vector<Real> terms;
  double exact_sum = 0.0, deepest = 0.0;
  for (const double element : x) {
    terms.push_back(exponential(subtract(Real::exactly(element), max)));
    exact_sum += std::exp(element - max.value);
    deepest = std::max(deepest, max.value - element);
  }
  const Real sum = ordered_sum(terms);
  const double unit = kFloat32.unit();
  std::vector<Expected> row;
  for (size_t i = 0; i < x.size(); ++i) {
    const Real shifted = subtract(Real::exactly(x[i]), max);
    const double below = max.value - x[i];
    if (log) {
      const double exact = -below - std::log(exact_sum);
      const double error =
          unit * (2 * below + std::fabs(exact) + std::fabs(std::log(exact_sum)) + 74 + 2 * deepest);
      row.push_back({subtract(shifted, logarithm(sum)), exact, error});
    } else {
      const double exact = std::exp(-below) / exact_sum;
      // exp and the quotient may both fall among the subnormal numbers.
      const double arithmetic =
          exact > 0.0 ? (below + std::log(static_cast<double>(x.size())) + 76) * unit * exact : 0.0;
      const double error = arithmetic + 2 * kFloat32.tiny();
      row.push_back({divide(terms[i], sum), exact, error});
    }
  }
  return row;
}

void fuzz_either(Random &random, Report &report, bool log) {
  const int32_t dtype = random_dtype(random);
  const Shape shape = random_shape(random);
  const int unit_dim = static_cast<int>(random.between(-1, 4));
  const Tensor x = random_input(random, dtype, shape, unit_dim);
  Tensor out = random_output(random, random.percent(30) ? BI_FLOAT32 : dtype, shape,
                             random.percent(70) ? unit_dim : -1);
  const int64_t axis = shape.empty() ? 0 : random.below(static_cast<int64_t>(shape.size()));
  int32_t dim = random_dim(random, shape.size(), axis);
  report.describe("x", x);
  report.describe("out", out);
  report.describe("dim=" + std::to_string(dim));

  std::vector<Argument> arguments;
  arguments.emplace_back("x", x);
  arguments.emplace_back("out", out);
  int threads = random_threads(random);
  Spoilt spoilt;
  if (random.percent(20)) {
    if (random.percent(10)) {
      dim = wrong_dim(random, shape.size());
      spoilt = {"dim of " + std::to_string(dim), {"dim"}};
    } else {
      spoilt = spoil(random, arguments, &threads);
    }
  }
  const bi_status status = (log ? bi_log_softmax : bi_softmax)(arguments[0].pointer(), dim,
                                                               arguments[1].pointer(), threads);
  report.untouched("x", x, true);
  if (!report.returned(status, spoilt, {{"out", &out}})) return;

  int64_t step = 1, length = 1;
  if (!shape.empty()) {
    length = shape[static_cast<size_t>(axis)];
    for (size_t d = static_cast<size_t>(axis) + 1; d < shape.size(); ++d) step *= shape[d];
  }
  std::vector<double> row(static_cast<size_t>(length));
  for (int64_t first = 0; first < x.count(); ++first) {
    if (first / step % length != 0) continue;
    for (int64_t i = 0; i < length; ++i) row[static_cast<size_t>(i)] = x.get(first + i * step);
    const std::vector<Expected> expected = expected_row(row, log);
    for (int64_t i = 0; i < length; ++i)
      report.element("out", out, first + i * step, expected[static_cast<size_t>(i)]);
  }
}

}  // namespace

void fuzz_softmax(Random &random, Report &report) { fuzz_either(random, report, false); }
void fuzz_log_softmax(Random &random, Report &report) { fuzz_either(random, report, true); }

}  // namespace bi_fuzz
