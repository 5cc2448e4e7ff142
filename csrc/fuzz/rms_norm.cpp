// SPDX-License-Identifier: Apache-2.0
//
// bi_rms_norm (csrc/ops/rms_norm/README.md).
#include <algorithm>

#include "arguments.h"
#include "operators.h"
#include "shapes.h"
#include "sums.h"

namespace bi_fuzz {
namespace {

struct Row {
  Expected rstd;
  std::vector<Expected> out;
};

// s: what is normalised, as stored. weight: empty for none.
Row expected_row(const std::vector<double> &s, double eps, const std::vector<double> &weight,
                 const Format &weight_format) {
  const auto n = static_cast<int64_t>(s.size());
  const Real squares = ordered_sum(n, [&](Real lane, int64_t i) {
    const Real x = Real::exactly(s[static_cast<size_t>(i)]);
    return multiply_add(x, x, lane);
  });
  const double small = round_to(kFloat32, eps);
  const Real variance =
      add(divide(squares, Real::exactly(static_cast<double>(n))), Real::exactly(small));
  const Real rstd = divide(Real::exactly(1.0), square_root(variance));
  double exact = 0.0;
  for (const double x : s) exact += x * x;
  exact = 1.0 / std::sqrt(exact / static_cast<double>(n) + small);
  if (std::isinf(variance.value)) exact = 0.0;  // squares beyond fp32's range: 1 / inf
  // The bound is relative: it is one where squares are normal numbers. Where they vanish, what the
  // operations cost is counted, one by one.
  const double unit = kFloat32.unit();
  const bool vanishing = variance.finite() && variance.value < 0x1p-100;
  const double relative =
      vanishing ? std::max(38 * unit, rstd.error / std::fabs(rstd.value)) : 38 * unit;
  Row row;
  row.rstd = {rstd, exact, relative * exact};
  for (size_t i = 0; i < s.size(); ++i) {
    Real y = multiply(Real::exactly(s[i]), rstd);
    double value = s[i] * exact, error = (relative + unit) * std::fabs(value) + kFloat32.tiny();
    if (!weight.empty()) {
      y = multiply(rounded(y, {weight_format, false}), Real::exactly(weight[i]));
      error += weight_format.unit() * (std::fabs(value) + error) + weight_format.tiny();
      error = error * std::fabs(weight[i]);
      value *= weight[i];
      error += unit * (std::fabs(value) + error) + kFloat32.tiny();
    }
    row.out.push_back({y, value, error});
  }
  return row;
}

}  // namespace

void fuzz_rms_norm(Random &random, Report &report) {
  const int32_t dtype = random_dtype(random);
  const Shape shape = random_shape(random, 1);
  const int last = static_cast<int>(shape.size()) - 1;
  const int64_t length = shape.back();
  const int unit_dim = random.percent(60) ? last : -1;
  const bool has_residual = random.percent(50), has_weight = random.percent(70);
  // Where the output takes the place of an input, that one's elements are apart as well.
  const bool in_place = random.percent(20), residual_in_place = random.percent(30);
  Tensor x = in_place ? random_output(random, dtype, shape, unit_dim)
                      : random_input(random, dtype, shape, unit_dim);
  Tensor residual = residual_in_place ? random_output(random, dtype, shape, unit_dim)
                                      : random_input(random, dtype, shape, unit_dim);
  for (Tensor *tensor : {&x, &residual}) {
    Values(random).fill(*tensor);
    tensor->remember();
  }
  const Tensor weight = random_input(random, random.percent(30) ? BI_FLOAT32 : dtype, {length},
                                     unit_dim >= 0 ? 0 : -1);
  Tensor other_out = random_output(random, dtype, shape, unit_dim);
  Tensor other_sum = random_output(random, dtype, shape, unit_dim);
  Tensor &out = in_place ? x : other_out;
  Tensor &sum = residual_in_place ? residual : other_sum;
  Shape rstd_shape = shape;
  rstd_shape.back() = 1;
  const bool has_rstd = random.percent(50);
  Tensor rstd = random_output(random, BI_FLOAT32, rstd_shape);
  double eps = random.one_of({1e-6, 1e-5, 1e-12, 0.0, 1e-30, 1.0, 1e-44, 1e-60});
  report.describe("x", x);
  report.describe("out", out);
  if (has_residual) report.describe("residual", residual);
  if (has_residual) report.describe("residual_out", sum);
  if (has_weight) report.describe("weight", weight);
  report.describe("eps=" + std::to_string(eps));
  const std::vector<double> given = x.values(), added = residual.values();

  std::vector<Argument> arguments;
  arguments.reserve(6);
  arguments.emplace_back("x", x);
  arguments.emplace_back("out", out);
  size_t at_residual = 0, at_weight = 0, at_rstd = 0;
  if (has_residual) {
    at_residual = arguments.size();
    arguments.emplace_back("residual", residual);
    arguments.emplace_back("residual_out", sum);
  }
  if (has_weight) {
    at_weight = arguments.size();
    arguments.emplace_back("weight", weight);
    arguments.back().required = false;
  }
  if (has_rstd) {
    at_rstd = arguments.size();
    arguments.emplace_back("rstd", rstd);
    arguments.back().required = false;
  }
  int threads = random_threads(random);
  Spoilt spoilt;
  if (random.percent(20)) {
    if (random.percent(10)) {
      eps = random.one_of({-1e-6, -HUGE_VAL, HUGE_VAL, static_cast<double>(NAN)});
      spoilt = {"eps of " + std::to_string(eps), {"eps"}};
    } else {
      spoilt = spoil(random, arguments, &threads);
      // One of the two alone is an error about both.
      if (spoilt.done()) spoilt.names.push_back("residual");
    }
  }
  auto optional = [&](size_t index) { return index > 0 ? arguments[index].pointer() : nullptr; };
  const bi_status status = bi_rms_norm(
      arguments[0].pointer(), optional(at_residual), optional(at_weight), eps,
      arguments[1].pointer(), has_residual ? arguments[at_residual + 1].pointer() : nullptr,
      optional(at_rstd), threads);
  if (!in_place) report.untouched("x", x, true);
  if (!residual_in_place || !has_residual) report.untouched("residual", residual, true);
  report.untouched("weight", weight, true);
  std::vector<Output> outputs = {{"out", &out}};
  if (has_residual) outputs.push_back({"residual_out", &sum});
  if (has_rstd) outputs.push_back({"rstd", &rstd});
  if (!report.returned(status, spoilt, outputs)) return;

  const std::vector<double> gamma = has_weight ? weight.values() : std::vector<double>{};
  std::vector<double> s(static_cast<size_t>(length));
  for (int64_t r = 0; r < rstd.count(); ++r) {
    bool known = true;
    for (int64_t i = 0; i < length; ++i) {
      const auto at = static_cast<size_t>(r * length + i);
      s[static_cast<size_t>(i)] = given[at];
      if (!has_residual) continue;
      const Real both = add(Real::exactly(given[at]), Real::exactly(added[at]));
      const double exact = given[at] + added[at];
      report.element("residual_out", sum, r * length + i,
                     {both, exact, kFloat32.unit() * std::fabs(exact)});
      // What was stored is what is normalised.
      s[static_cast<size_t>(i)] = sum.get(r * length + i);
      known &= !both.open;
    }
    if (!known) continue;
    const Row row = expected_row(s, eps, gamma, format_of(weight.dtype()));
    if (has_rstd) report.element("rstd", rstd, r, row.rstd);
    for (int64_t i = 0; i < length; ++i)
      report.element("out", out, r * length + i, row.out[static_cast<size_t>(i)]);
  }
}

}  // namespace bi_fuzz
