// SPDX-License-Identifier: Apache-2.0
//
// Shares softmax's kernels: the same maximum and the same sum, another last step.
#include "../../softmax/cpu/softmax_kernel.h"

extern "C" bi_status bi_log_softmax(const bi_tensor *x, int32_t dim, const bi_tensor *out,
                                    int threads) {
  return bi::guarded([&] { bi::softmax_entry(x, dim, out, threads, true); });
}
