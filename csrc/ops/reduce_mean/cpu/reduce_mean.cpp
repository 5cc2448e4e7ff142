// SPDX-License-Identifier: Apache-2.0
//
// The mean is the sum (ops/reduce_sum, same kernels and bits) divided once by the count.
#include "../../reduce_sum/cpu/reduce_sum_kernel.h"

extern "C" bi_status bi_reduce_mean(const bi_tensor *x, const int32_t *dims, int32_t ndims,
                                    const bi_tensor *out, int threads) {
  return bi::guarded([&] { bi::reduce_entry(x, dims, ndims, out, threads, true); });
}
