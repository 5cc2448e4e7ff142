// SPDX-License-Identifier: Apache-2.0
#include "runtime.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace bi {
namespace {

// Fixed storage: reporting that memory ran out must not need any.
thread_local char last_error[512] = "";

void remember(const char *text) noexcept {
  std::strncpy(last_error, text, sizeof(last_error) - 1);
  last_error[sizeof(last_error) - 1] = '\0';
}

// Fork and join, for embedders without a pool: tasks are claimed one by one. The calling thread
// works too, so a machine that refuses to start threads still gets its result.
void run_on_own_threads(int64_t tasks, int threads, bi_task task, void *arg) {
  std::atomic<int64_t> next{0};
  auto work = [&] {
    for (int64_t i = next++; i < tasks; i = next++) task(arg, i);
  };
  std::vector<std::thread> team;
  const int64_t others = std::min<int64_t>(threads, tasks) - 1;
  team.reserve(static_cast<size_t>(others));
  for (int64_t t = 0; t < others; ++t) {
    try {
      team.emplace_back(work);
    } catch (const std::system_error &) {
      break;
    }
  }
  work();
  for (auto &member : team) member.join();
}

std::atomic<bi_run> installed_run{nullptr};

}  // namespace

void fail(bi_status status, std::string message) { throw Error{status, std::move(message)}; }

bi_status report(const Error &error) noexcept {
  remember(error.message.c_str());
  return error.status;
}

bi_status report_out_of_memory() noexcept {
  remember("out of memory for the operator's workspace");
  return BI_OUT_OF_MEMORY;
}

bi_status report_ok() noexcept {
  last_error[0] = '\0';
  return BI_OK;
}

void run_tasks(int64_t tasks, int threads, bi_task task, void *arg) {
  if (tasks <= 0) return;
  if (threads <= 1 || tasks == 1) {
    for (int64_t i = 0; i < tasks; ++i) task(arg, i);
    return;
  }
  const bi_run run = installed_run.load(std::memory_order_acquire);
  (run != nullptr ? run : run_on_own_threads)(tasks, threads, task, arg);
}

}  // namespace bi

extern "C" {
uint32_t bi_abi_version(void) { return BI_ABI_VERSION; }
const char *bi_version(void) { return BI_VERSION; }
const char *bi_last_error(void) { return bi::last_error; }
void bi_set_run(bi_run run) { bi::installed_run.store(run, std::memory_order_release); }
}
