// SPDX-License-Identifier: Apache-2.0
//
// exp and log against double, over a sweep of all fp32 values. The kernels' header is compiled here
// for the portable instruction set; that the others give the same bits, the operators' tests state.
#define BI_ISA test_portable
#include "exp_log.h"

#include "testing.h"

namespace {

using bi::BI_ISA::Vec;
using bi_test::expect;
using bi_test::from_bits;

float exp_of(float x) { return bi::BI_ISA::exp(Vec::set1(x)).first(); }

// |found - exact| in units of the last place of the result, subnormals included.
double error_in_ulp(float found, double exact) {
  int e;
  std::frexp(exact, &e);
  return std::fabs(found - exact) / std::ldexp(1.0, std::max(e - 24, -149));
}

void test_exp() {
  double worst = 0;
  // Every 10007th float between -104 and 88.72, both signs, all exponents.
  for (uint32_t u = 0; u < 0x7f800000u; u += 10007) {
    for (const float x : {from_bits(u), from_bits(u | 0x80000000u)}) {
      if (x > 88.72f || x < -104.0f) continue;
      worst = std::max(worst, error_in_ulp(exp_of(x), std::exp(static_cast<double>(x))));
    }
  }
  std::fprintf(stderr, "exp: %.4f ulp\n", worst);
  expect(worst < 1.0, "exp is within 1 ulp");
  const float inf = HUGE_VALF;
  expect(exp_of(-inf) == 0.0f && exp_of(inf) == inf && std::isnan(exp_of(NAN)), "exp's limits");
  expect(exp_of(0.0f) == 1.0f && exp_of(-0.0f) == 1.0f, "exp(0) = 1");
  expect(exp_of(88.73f) == inf && exp_of(1e30f) == inf && exp_of(-103.98f) == 0.0f, "exp's range");
}

void test_log() {
  double worst = 0;
  for (uint32_t u = 1; u < 0x7f800000u; u += 20011) {
    const float x = from_bits(u);
    worst = std::max(worst, error_in_ulp(bi::BI_ISA::log(x), std::log(static_cast<double>(x))));
  }
  for (uint32_t u = 0x3f000000u; u < 0x40000000u; u += 1009) {  // around 1
    const float x = from_bits(u);
    if (x == 1.0f) continue;
    worst = std::max(worst, error_in_ulp(bi::BI_ISA::log(x), std::log(static_cast<double>(x))));
  }
  std::fprintf(stderr, "log: %.4f ulp\n", worst);
  expect(worst < 0.51, "log is within 0.51 ulp");
  const float inf = HUGE_VALF;
  expect(bi::BI_ISA::log(0.0f) == -inf && bi::BI_ISA::log(-0.0f) == -inf, "log(0) = -inf");
  expect(bi::BI_ISA::log(inf) == inf && bi::BI_ISA::log(1.0f) == 0.0f, "log's limits");
  expect(std::isnan(bi::BI_ISA::log(-1.0f)) && std::isnan(bi::BI_ISA::log(NAN)),
         "log of no number");
}

void tests() {
  test_exp();
  test_log();
}

}  // namespace

int main() { return bi_test::finish(tests); }
