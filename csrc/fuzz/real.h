// SPDX-License-Identifier: Apache-2.0
//
// What fp32 arithmetic makes of a number, seen from float64: its exact value, how far the computed
// one may lie from it, and whether it has left fp32's range. Operations are made in the order that
// an operator's README states, so that a sum overflows here where it overflows there.
//
// An infinity or NaN is *decided*: every computation that keeps the stated order has it. Where the
// exact value is closer to the edge of the range than the errors so far, either outcome is right:
// the number is `open`, and so is all that is computed from it.
#ifndef BI_FUZZ_REAL_H
#define BI_FUZZ_REAL_H

#include <algorithm>
#include <cmath>

#include "format.h"

namespace bi_fuzz {

struct Real {
  double value = 0.0;
  double error = 0.0;  // of the computed number against `value`; 0 beside an infinity or NaN
  bool open = false;

  static Real exactly(double x) { return {x, 0.0, false}; }
  static Real undecided() { return {0.0, 0.0, true}; }
  bool finite() const { return !open && std::isfinite(value); }
  // The computed number may be zero, or have another sign than `value`, but need not.
  bool sign_unknown() const { return error > 0.0 && error >= std::fabs(value); }
};

// How results are rounded; `flush`: subnormal results count as zeros, as in vdpbf16ps.
struct Rounding {
  Format format = kFloat32;
  bool flush = false;
};

inline Real rounded(Real x, const Rounding &rounding = {}) {
  if (x.open || !std::isfinite(x.value)) return x.open ? x : Real::exactly(x.value);
  const double size = std::fabs(x.value);
  const double edge = rounding.format.overflow();
  if (size - x.error >= edge) return Real::exactly(std::copysign(HUGE_VAL, x.value));
  if (size + x.error >= edge) return Real::undecided();
  const double step = rounding.flush ? rounding.format.normal() : 0.5 * rounding.format.tiny();
  if (size + x.error < step) return Real::exactly(std::copysign(0.0, x.value));
  // A part in 2^50 for float64's own roundings.
  x.error += (rounding.format.unit() + 0x1p-50) * (size + x.error) + step;
  return x;
}

// Results of the exact operation; `rounded` makes them fp32's.
inline Real sum_of(Real a, Real b) {
  if (a.open || b.open) return Real::undecided();
  return {a.value + b.value, a.error + b.error, false};
}

inline Real negative(Real a) { return {-a.value, a.error, a.open}; }

inline Real product_of(Real a, Real b) {
  if (a.open || b.open) return Real::undecided();
  if ((std::isinf(a.value) && b.sign_unknown()) || (std::isinf(b.value) && a.sign_unknown()))
    return Real::undecided();
  const double value = a.value * b.value;
  if (!std::isfinite(value)) return Real::exactly(value);
  return {value, std::fabs(a.value) * b.error + std::fabs(b.value) * a.error + a.error * b.error,
          false};
}

// A divisor of zero counts as +0.
inline Real quotient_of(Real a, Real b) {
  if (a.open || b.open || b.sign_unknown()) return Real::undecided();
  if (std::isinf(b.value) && std::isfinite(a.value)) return Real::exactly(a.value / b.value);
  const double value = a.value / (b.value == 0.0 ? 0.0 : b.value);
  if (!std::isfinite(value)) return Real::exactly(value);
  const double least = std::fabs(b.value) - b.error;
  return {value, (a.error + std::fabs(value) * b.error) / least, false};
}

inline Real root_of(Real a) {
  if (a.open || !std::isfinite(a.value)) return a;
  const double value = std::sqrt(a.value);
  const double low = std::sqrt(std::max(0.0, a.value - a.error));
  return {value, std::max(value - low, std::sqrt(a.value + a.error) - value), false};
}

inline Real add(Real a, Real b) { return rounded(sum_of(a, b)); }
inline Real subtract(Real a, Real b) { return rounded(sum_of(a, negative(b))); }
inline Real multiply(Real a, Real b) { return rounded(product_of(a, b)); }
inline Real divide(Real a, Real b) { return rounded(quotient_of(a, b)); }
inline Real square_root(Real a) { return rounded(root_of(a)); }
inline Real multiply_add(Real a, Real b, Real c, bool flush = false) {
  return rounded(sum_of(product_of(a, b), c), {kFloat32, flush});
}

// Within 1 ulp, so one rounding more than the others; 0 below -104 (csrc/cpu/exp_log.h).
inline Real exponential(Real a) {
  if (a.open) return a;
  if (std::isnan(a.value)) return a;
  if (std::isinf(a.value)) return Real::exactly(a.value > 0 ? HUGE_VAL : 0.0);
  if (a.value + a.error <= -104.0) return Real::exactly(0.0);
  const double value = std::exp(a.value);
  const double error = a.error < 700.0 ? value * std::expm1(a.error) : HUGE_VAL;
  if (!std::isfinite(value) || !std::isfinite(error)) return Real::undecided();
  return rounded({value, error + kFloat32.unit() * value + kFloat32.tiny(), false});
}

inline Real logarithm(Real a) {
  if (a.open || std::isnan(a.value)) return a;
  if (a.sign_unknown()) return Real::undecided();
  if (!std::isfinite(a.value) || a.value <= 0.0) return Real::exactly(std::log(a.value));
  return rounded({std::log(a.value), a.error / (a.value - a.error), false});
}

// The larger one; NaN is passed over.
inline Real larger(Real a, Real b) {
  if (a.open || b.open) return Real::undecided();
  if (std::isnan(a.value)) return b;
  if (std::isnan(b.value)) return a;
  const Real &more = a.value >= b.value ? a : b;
  const double error = std::isinf(more.value) ? 0.0 : std::max(a.error, b.error);
  return {more.value, error, false};
}

}  // namespace bi_fuzz

#endif
