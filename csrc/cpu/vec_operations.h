// SPDX-License-Identifier: Apache-2.0
//
// For vec_test.cc: the operations of vec.h on sixteen floats in memory, compiled for each
// instruction set.
#ifndef BI_CPU_VEC_OPERATIONS_H
#define BI_CPU_VEC_OPERATIONS_H

#include "dtype.h"
#include "isa.h"

namespace bi {

struct VecOperations {
  // out = f(a, b, c), a, b and c where f has so many operands.
  void (*add)(const float *a, const float *b, const float *c, float *out);
  void (*subtract)(const float *a, const float *b, const float *c, float *out);
  void (*multiply)(const float *a, const float *b, const float *c, float *out);
  void (*divide)(const float *a, const float *b, const float *c, float *out);
  void (*fma)(const float *a, const float *b, const float *c, float *out);
  void (*max)(const float *a, const float *b, const float *c, float *out);
  void (*min)(const float *a, const float *b, const float *c, float *out);
  void (*sqrt)(const float *a, const float *b, const float *c, float *out);
  void (*round)(const float *a, const float *b, const float *c, float *out);
  void (*scale2)(const float *x, const float *n, const float *, float *out);
  void (*select_lt)(const float *x, const float *y, const float *a, float *out);  // else y
  void (*select_nan)(const float *x, const float *a, const float *b, float *out);
  void (*round_bf16)(const float *a, const float *b, const float *c, float *out);
  void (*round_f16)(const float *a, const float *b, const float *c, float *out);

  void (*keep)(const float *x, int begin, int end, float fill, float *out);
  float (*reduce_add)(const float *x);
  float (*largest)(const float *x);
  float (*first)(const float *x);

  void (*load_bf16)(const bf16 *p, float *out);
  void (*load_f16)(const f16 *p, float *out);
  void (*store_bf16)(const float *x, bf16 *p);
  void (*store_f16)(const float *x, f16 *p);
  void (*load_n)(const float *p, int n, float fill, float *out);
  void (*load_n_bf16)(const bf16 *p, int n, float fill, float *out);
  void (*load_n_f16)(const f16 *p, int n, float fill, float *out);
  void (*store_n)(const float *x, float *p, int n);
  void (*store_n_bf16)(const float *x, bf16 *p, int n);
  void (*store_n_f16)(const float *x, f16 *p, int n);
};

#ifdef BI_ISA
namespace BI_ISA {
const VecOperations &vec_operations();
}
#else
#define BI_DECLARE(isa, ...)             \
  namespace isa {                        \
  const VecOperations &vec_operations(); \
  }
BI_EACH_ISA(BI_DECLARE, )
#undef BI_DECLARE
#endif

}  // namespace bi

#endif
