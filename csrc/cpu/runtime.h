// SPDX-License-Identifier: Apache-2.0
//
// What every CPU operator needs besides arithmetic: errors and threads.
#ifndef BI_CPU_RUNTIME_H
#define BI_CPU_RUNTIME_H

#include <cstdint>
#include <new>
#include <string>

#include "batch_invariant.h"

namespace bi {

// Thrown inside an operator; `guarded` turns it into a status and bi_last_error().
struct Error {
  bi_status status;
  std::string message;
};

[[noreturn]] void fail(bi_status status, std::string message);

bi_status report(const Error &error) noexcept;
bi_status report_out_of_memory() noexcept;
bi_status report_ok() noexcept;

// Runs `body`, which may throw Error or std::bad_alloc, at the C boundary. A task given to
// parallel_for must not throw: its workspace is allocated before.
template <typename Body>
bi_status guarded(Body &&body) noexcept {
  try {
    body();
    return report_ok();
  } catch (const Error &error) {
    return report(error);
  } catch (const std::bad_alloc &) {
    return report_out_of_memory();
  }
}

// Runs task(arg, i) for each i in [0, tasks) on at most `threads` threads. Bits must not depend on
// which thread runs what.
void run_tasks(int64_t tasks, int threads, bi_task task, void *arg);

template <typename F>
void parallel_for(int64_t tasks, int threads, F &&f) {
  using Body = std::remove_reference_t<F>;
  run_tasks(
      tasks, threads, [](void *arg, int64_t i) { (*static_cast<Body *>(arg))(i); },
      const_cast<void *>(static_cast<const void *>(&f)));
}

}  // namespace bi

#endif
