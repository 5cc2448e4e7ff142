// SPDX-License-Identifier: Apache-2.0
//
// From the code of a floating-point type to the type.
#ifndef BI_CPU_FLOAT_TYPES_H
#define BI_CPU_FLOAT_TYPES_H

#include <cstdint>

#include "batch_invariant.h"
#include "dtype.h"

namespace bi {

// Calls f(T{}) with the C++ type of a bi_dtype that check_float (tensor_check.h) has passed.
template <typename F>
static inline void with_float_type(int32_t dtype, F &&f) {
  switch (dtype) {
    case BI_BFLOAT16:
      f(bf16{});
      break;
    case BI_FLOAT16:
      f(f16{});
      break;
    default:
      f(float{});
  }
}

// Element `at` of an array of that type.
static inline float float_at(const void *data, int32_t dtype, int64_t at) {
  float value = 0.0f;
  with_float_type(
      dtype, [&](auto type) { value = to_float(static_cast<const decltype(type) *>(data)[at]); });
  return value;
}

}  // namespace bi

#endif
