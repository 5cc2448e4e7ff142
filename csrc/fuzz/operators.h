// SPDX-License-Identifier: Apache-2.0
//
// One call of an operator each: drawn from `random`, made, and compared with the reference.
#ifndef BI_FUZZ_OPERATORS_H
#define BI_FUZZ_OPERATORS_H

#include "random.h"
#include "report.h"

namespace bi_fuzz {

void fuzz_matmul(Random &random, Report &report);
void fuzz_grouped_matmul(Random &random, Report &report);
void fuzz_reduce_sum(Random &random, Report &report);
void fuzz_reduce_mean(Random &random, Report &report);
void fuzz_softmax(Random &random, Report &report);
void fuzz_log_softmax(Random &random, Report &report);
void fuzz_rms_norm(Random &random, Report &report);
void fuzz_attention(Random &random, Report &report);

constexpr struct {
  const char *name;
  void (*call)(Random &random, Report &report);
} kOperators[] = {
    {"matmul", fuzz_matmul},         {"grouped_matmul", fuzz_grouped_matmul},
    {"reduce_sum", fuzz_reduce_sum}, {"reduce_mean", fuzz_reduce_mean},
    {"softmax", fuzz_softmax},       {"log_softmax", fuzz_log_softmax},
    {"rms_norm", fuzz_rms_norm},     {"attention", fuzz_attention},
};

}  // namespace bi_fuzz

#endif
