// SPDX-License-Identifier: Apache-2.0
#include "threads.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

namespace batch_invariant_ops {

void run_on_torch_threads(int64_t tasks, int threads, bi_task task, void *arg) {
  const int64_t workers = std::min<int64_t>(threads, tasks);
  if (workers <= 1) {
    for (int64_t i = 0; i < tasks; ++i) task(arg, i);
    return;
  }
  // One chunk a worker, and tasks claimed one by one: at::parallel_for alone would hand each worker
  // a contiguous share, however long its tasks take.
  std::atomic<int64_t> next{0};
  at::parallel_for(0, workers, 1, [&](int64_t, int64_t) {
    for (int64_t i = next.fetch_add(1); i < tasks; i = next.fetch_add(1)) task(arg, i);
  });
}

}  // namespace batch_invariant_ops
