// SPDX-License-Identifier: Apache-2.0
//
// bi_matmul, bi_matmul_pack, bi_matmul_packed: checks, then plan.h.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "batch_invariant.h"
#include "operands.h"
#include "packed.h"
#include "plan.h"
#include "runtime.h"

namespace bi {
namespace {

void matmul(const bi_tensor *a, const bi_tensor *b, const void *packed, size_t size,
            const bi_tensor *bias, const bi_tensor *out, int threads) {
  check_threads(threads);
  check_matrix("a", a, 2, 3);
  const int32_t nd = a->ndim;
  const int64_t batch = nd == 3 ? a->shape[0] : 1;
  const int64_t m = a->shape[nd - 2], k = a->shape[nd - 1];
  int64_t n = 0;
  PackedWeight weight{};
  if (b != nullptr) {
    check_matrix("b", b, nd, nd);
    check_same_dtype("b", *b, "a", a->dtype);
    if (nd == 3) check_extent("b", *b, 0, batch, "the batch of a");
    check_extent("b", *b, nd - 2, k, "the columns of a");
    n = b->shape[nd - 1];
  } else {
    weight = check_packed(packed, size, *a, 1);
    n = weight.n;
  }
  check_matrix("out", out, nd, nd);
  check_same_dtype("out", *out, "a", a->dtype);
  if (nd == 3) check_extent("out", *out, 0, batch, "the batch of a");
  check_extent("out", *out, nd - 2, m, "the rows of a");
  check_extent("out", *out, nd - 1, n, "the columns of b");
  check_unit_columns("out", *out);
  const std::vector<float> bias_values = bias_as_float(bias, a->dtype, n);
  if (element_count(*out) == 0) return;

  const int64_t element = element_bytes(a->dtype);
  const Shape shape{a->dtype, k, n, out->stride[nd - 2],
                    bias == nullptr ? nullptr : bias_values.data()};
  std::vector<Product> products(static_cast<size_t>(batch));
  for (int64_t i = 0; i < batch; ++i) {
    Product &p = products[static_cast<size_t>(i)];
    p.a = matrix_of(*a, i);
    p.rows = m;
    p.packed_b = b == nullptr ? weight.expert(packed, 0) : nullptr;
    p.b = b == nullptr ? Matrix{nullptr, 0, 0} : matrix_of(*b, i);
    p.out = static_cast<char *>(out->data) + (nd == 3 ? i * out->stride[0] * element : 0);
  }
  multiply_all(shape, products, threads);
}

void pack(const bi_tensor *b, void *packed, size_t size, int threads) {
  check_threads(threads);
  check_matrix("b", b, 2, 3);
  const int32_t nd = b->ndim;
  const PackedWeight weight{b->dtype, nd == 3 ? b->shape[0] : 1, b->shape[nd - 2],
                            b->shape[nd - 1]};
  if (packed == nullptr)
    fail(BI_INVALID_ARGUMENT, "packed: expected a buffer, found a null pointer");
  if (size != weight.bytes())
    fail(BI_INVALID_ARGUMENT, "packed: expected " + std::to_string(weight.bytes()) +
                                  " bytes (bi_matmul_packed_size), found " + std::to_string(size));
  weight.write_header(packed);
  if (element_count(*b) == 0) return;
  const MatmulKernels &kernels = BI_CALL_MATRIX(matmul_kernels)();
  const int64_t panels = (weight.n + kPanel - 1) / kPanel;
  const int64_t words = words_of(weight.dtype, weight.k);
  parallel_for(weight.experts * panels, threads, [&](int64_t index) {
    const int64_t expert = index / panels, n0 = index % panels * kPanel;
    auto *to = const_cast<uint32_t *>(weight.expert(packed, expert)) + n0 * words;
    kernels.pack_b(weight.dtype, matrix_of(*b, expert), weight.k, weight.n, n0, to);
  });
}

}  // namespace
}  // namespace bi

extern "C" {

bi_status bi_matmul(const bi_tensor *a, const bi_tensor *b, const bi_tensor *bias,
                    const bi_tensor *out, int threads) {
  return bi::guarded([&] {
    if (b == nullptr) bi::fail(BI_INVALID_ARGUMENT, "b: expected a tensor, found a null pointer");
    bi::matmul(a, b, nullptr, 0, bias, out, threads);
  });
}

size_t bi_matmul_packed_size(int64_t experts, int64_t k, int64_t n, int32_t dtype) {
  size_t size = 0;
  bi::guarded([&] {
    if (experts < 0 || k < 0 || n < 0)
      bi::fail(BI_INVALID_ARGUMENT, "bi_matmul_packed_size: negative size");
    bi::check_matmul_dtype("dtype", dtype);
    size = bi::PackedWeight{dtype, experts, k, n}.bytes();
  });
  return size;
}

bi_status bi_matmul_pack(const bi_tensor *b, void *packed, size_t size, int threads) {
  return bi::guarded([&] { bi::pack(b, packed, size, threads); });
}

bi_status bi_matmul_packed(const bi_tensor *a, const void *packed, size_t size,
                           const bi_tensor *bias, const bi_tensor *out, int threads) {
  return bi::guarded([&] { bi::matmul(a, nullptr, packed, size, bias, out, threads); });
}

}  // extern "C"
