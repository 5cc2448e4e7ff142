// SPDX-License-Identifier: Apache-2.0
#ifndef BATCH_INVARIANT_OPS_THREADS_H
#define BATCH_INVARIANT_OPS_THREADS_H

#include "batch_invariant.h"

namespace batch_invariant_ops {

// bi_run on PyTorch's own threads, which an embedder such as vLLM has pinned to cores: threads
// started beside them would share one core. Safe inside another parallel region, where it runs on
// the calling thread.
void run_on_torch_threads(int64_t tasks, int threads, bi_task task, void *arg);

}  // namespace batch_invariant_ops

#endif
