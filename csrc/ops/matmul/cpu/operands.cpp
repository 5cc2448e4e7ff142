// SPDX-License-Identifier: Apache-2.0
#include "operands.h"

#include <string>

#include "float_types.h"
#include "runtime.h"

namespace bi {

void check_matmul_dtype(const char *name, int32_t dtype) {
  if (dtype != BI_FLOAT32 && dtype != BI_BFLOAT16 && dtype != BI_FLOAT16)
    fail(BI_UNSUPPORTED_DTYPE,
         std::string(name) + ": expected float32, bfloat16 or float16, found " + dtype_name(dtype));
}

void check_matrix(const char *name, const bi_tensor *t, int32_t min_ndim, int32_t max_ndim) {
  const std::string who = name;
  check_tensor(t, who);
  if (t->ndim < min_ndim || t->ndim > max_ndim) {
    std::string expected = std::to_string(min_ndim);
    if (max_ndim != min_ndim) expected += " or " + std::to_string(max_ndim);
    fail(BI_INVALID_ARGUMENT,
         who + ": expected " + expected + " dimensions, found shape " + shape_text(*t));
  }
  check_matmul_dtype(name, t->dtype);
}

void check_same_dtype(const char *name, const bi_tensor &t, const char *like, int32_t dtype) {
  if (t.dtype != dtype)
    fail(BI_INVALID_ARGUMENT, std::string(name) + ": expected " + dtype_name(dtype) + " as " +
                                  like + ", found " + dtype_name(t.dtype));
}

void check_extent(const char *name, const bi_tensor &t, int32_t dim, int64_t expected,
                  const char *what) {
  if (t.shape[dim] != expected)
    fail(BI_INVALID_ARGUMENT, std::string(name) + ": expected size " + std::to_string(expected) +
                                  " (" + what + ") in dimension " + std::to_string(dim) +
                                  ", found shape " + shape_text(t));
}

int64_t checked_product(const char *name, int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product))
    fail(BI_INVALID_ARGUMENT, std::string(name) + ": sizes " + std::to_string(a) + " x " +
                                  std::to_string(b) + " overflow 64 bits");
  return product;
}

void check_unit_columns(const char *name, const bi_tensor &t) {
  const int32_t last = t.ndim - 1;
  if (t.stride[last] != 1 && t.shape[last] > 1)
    fail(BI_INVALID_ARGUMENT, std::string(name) +
                                  ": expected stride 1 in the last dimension, found " +
                                  std::to_string(t.stride[last]));
}

PackedWeight check_packed(const void *packed, size_t size, const bi_tensor &a, int64_t experts) {
  const PackedWeight weight = PackedWeight::read_header(packed, size);
  if (weight.dtype != a.dtype)
    fail(BI_INVALID_ARGUMENT, std::string("packed: expected ") + dtype_name(a.dtype) +
                                  " as a, found " + dtype_name(weight.dtype));
  if (weight.experts != experts)
    fail(BI_INVALID_ARGUMENT, "packed: expected " + std::to_string(experts) + " experts, found " +
                                  std::to_string(weight.experts));
  const int64_t k = a.shape[a.ndim - 1];
  if (weight.k != k)
    fail(BI_INVALID_ARGUMENT, "packed: expected K = " + std::to_string(k) +
                                  " (the columns of a), found " + std::to_string(weight.k));
  return weight;
}

std::vector<float> bias_as_float(const bi_tensor *bias, int32_t dtype, int64_t n) {
  std::vector<float> values;
  if (bias == nullptr) return values;
  check_matrix("bias", bias, 1, 1);
  check_same_dtype("bias", *bias, "a", dtype);
  check_extent("bias", *bias, 0, n, "the columns of b");
  values.resize(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    values[static_cast<size_t>(i)] = float_at(bias->data, dtype, i * bias->stride[0]);
  return values;
}

Matrix matrix_of(const bi_tensor &t, int64_t i) {
  // Without elements there is no address to step from.
  if (element_count(t) == 0) return {nullptr, 0, 0};
  const int32_t nd = t.ndim;
  const int64_t offset = nd == 3 && t.shape[0] > 1 ? i * t.stride[0] : 0;
  // The stride of a single row or column means nothing, and may be anything.
  auto stride = [&](int32_t d) { return t.shape[d] > 1 ? t.stride[d] : 0; };
  return {static_cast<const char *>(t.data) + offset * element_bytes(t.dtype), stride(nd - 2),
          stride(nd - 1)};
}

}  // namespace bi
