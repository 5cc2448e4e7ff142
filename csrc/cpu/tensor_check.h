// SPDX-License-Identifier: Apache-2.0
//
// What the operators' entries check of their tensors. Each message names the argument, says what
// was expected and what was found.
#ifndef BI_CPU_TENSOR_CHECK_H
#define BI_CPU_TENSOR_CHECK_H

#include <cstdint>
#include <string>

#include "runtime.h"
#include "strided.h"

namespace bi {

inline std::string shape_text(const bi_tensor &t) {
  std::string text = "[";
  for (int d = 0; d < t.ndim; ++d) text += (d > 0 ? ", " : "") + std::to_string(t.shape[d]);
  return text + "]";
}

inline const char *dtype_name(int32_t dtype) {
  switch (dtype) {
    case BI_FLOAT32:
      return "float32";
    case BI_BFLOAT16:
      return "bfloat16";
    case BI_FLOAT16:
      return "float16";
    case BI_INT32:
      return "int32";
    case BI_INT64:
      return "int64";
    default:
      return "unknown";
  }
}

// Of a tensor that check_tensor has seen.
inline int64_t element_count(const bi_tensor &t) {
  int64_t count = 1;
  for (int d = 0; d < t.ndim; ++d) {
    if (t.shape[d] == 0) return 0;
    count *= t.shape[d];
  }
  return count;
}

// Each element can be counted, and lies at an offset in bytes that fits in 64 bits, whatever its
// type: what entries and kernels compute of extents and strides does not overflow.
inline bool within_64_bits(const bi_tensor &t) {
  constexpr int64_t kWidest = 8;
  int64_t count = kWidest, low = 0, high = 0;
  bool overflow = false;
  for (int d = 0; d < t.ndim; ++d) {
    if (t.shape[d] == 0) return true;
    if (t.shape[d] == 1) continue;
    int64_t reach;
    overflow |= __builtin_mul_overflow(count, t.shape[d], &count);
    overflow |= __builtin_mul_overflow(t.shape[d] - 1, t.stride[d], &reach);
    overflow |= __builtin_mul_overflow(reach, kWidest, &reach);
    int64_t &end = reach < 0 ? low : high;
    overflow |= __builtin_add_overflow(end, reach, &end);
  }
  return !overflow;
}

// Extents and pointer are usable: not null, not negative, data present unless there are no
// elements.
inline void check_tensor(const bi_tensor *t, const std::string &name) {
  if (t == nullptr) fail(BI_INVALID_ARGUMENT, name + ": expected a tensor, found NULL");
  if (t->ndim < 0 || t->ndim > kMaxDims)
    fail(BI_INVALID_ARGUMENT, name + ": expected 0 to " + std::to_string(kMaxDims) +
                                  " dimensions, found " + std::to_string(t->ndim));
  if (t->ndim > 0 && (t->shape == nullptr || t->stride == nullptr))
    fail(BI_INVALID_ARGUMENT, name + ": shape and stride must not be NULL");
  for (int d = 0; d < t->ndim; ++d)
    if (t->shape[d] < 0)
      fail(BI_INVALID_ARGUMENT, name + ": negative extent in shape " + shape_text(*t));
  if (!within_64_bits(*t))
    fail(BI_INVALID_ARGUMENT,
         name + ": shape " + shape_text(*t) + " and its strides reach beyond 64-bit addresses");
  if (t->data == nullptr && element_count(*t) > 0)
    fail(BI_INVALID_ARGUMENT, name + ": data is NULL for shape " + shape_text(*t));
}

inline void check_float(const bi_tensor &t, const std::string &name) {
  if (t.dtype != BI_FLOAT32 && t.dtype != BI_BFLOAT16 && t.dtype != BI_FLOAT16)
    fail(BI_UNSUPPORTED_DTYPE,
         name + ": expected float32, bfloat16 or float16, found " + dtype_name(t.dtype));
}

inline void check_dtype_in(const bi_tensor &t, const std::string &name, int32_t first,
                           int32_t second) {
  if (t.dtype == first || t.dtype == second) return;
  std::string expected = dtype_name(first);
  if (second != first) expected += std::string(" or ") + dtype_name(second);
  fail(BI_UNSUPPORTED_DTYPE, name + ": expected " + expected + ", found " + dtype_name(t.dtype));
}

inline void check_same_shape(const bi_tensor &t, const std::string &name, const bi_tensor &like,
                             const std::string &like_name) {
  bool same = t.ndim == like.ndim;
  for (int d = 0; same && d < t.ndim; ++d) same = t.shape[d] == like.shape[d];
  if (!same)
    fail(BI_INVALID_ARGUMENT, name + ": expected " + like_name + "'s shape " + shape_text(like) +
                                  ", found " + shape_text(t));
}

// An axis in [-ndim, ndim) as one in [0, ndim); a 0-d tensor has axis 0, as in torch.
inline int32_t check_axis(int32_t axis, const bi_tensor &t, const std::string &name) {
  const int32_t ndim = t.ndim > 0 ? t.ndim : 1;
  if (axis < -ndim || axis >= ndim)
    fail(BI_INVALID_ARGUMENT, name + ": expected a dimension in [" + std::to_string(-ndim) + ", " +
                                  std::to_string(ndim - 1) + "], found " + std::to_string(axis));
  return axis < 0 ? axis + ndim : axis;
}

inline int check_threads(int threads) {
  if (threads < 1)
    fail(BI_INVALID_ARGUMENT, "threads: expected at least 1, found " + std::to_string(threads));
  return threads;
}

}  // namespace bi

#endif
