// SPDX-License-Identifier: Apache-2.0
#include "runtime.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
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

bool machine_runs(Isa isa) {
  switch (isa) {
    case Isa::portable:
      return true;
#if defined(__x86_64__)
    case Isa::avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("fma");
    case Isa::avx512_bf16:
      return machine_runs(Isa::avx512) && __builtin_cpu_supports("avx512bf16");
#endif
  }
  return false;
}

#define BI_ENUM_VALUE(isa, ...) Isa::isa,
constexpr Isa kIsas[] = {BI_EACH_ISA(BI_ENUM_VALUE, )};
#undef BI_ENUM_VALUE

struct Choice {
  Isa isa = Isa::portable;
  std::string error;
};

Choice choose() {
  Choice choice;
  const char *env = std::getenv("BI_CPU_ISA");
  const std::string wanted = env != nullptr ? env : "";
  std::string known;
  for (Isa isa : kIsas) {
    if (wanted.empty()) {
      if (machine_runs(isa)) choice.isa = isa;  // the last one is the best
      continue;
    }
    if (wanted == isa_name(isa)) {
      choice.isa = isa;
      if (!machine_runs(isa))
        choice.error = "BI_CPU_ISA: this machine does not run '" + wanted + "'";
      return choice;
    }
    known += (known.empty() ? "" : ", ") + std::string(isa_name(isa));
  }
  if (!wanted.empty())
    choice.error = "BI_CPU_ISA: unknown instruction set '" + wanted + "'; expected one of " + known;
  return choice;
}

const Choice &choice() {
  static const Choice chosen = choose();
  return chosen;
}

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

const char *isa_name(Isa isa) {
#define BI_NAME(isa, ...) #isa,
  static constexpr const char *kNames[] = {BI_EACH_ISA(BI_NAME, )};
#undef BI_NAME
  return kNames[static_cast<size_t>(isa)];
}

Isa chosen_isa() {
  if (!choice().error.empty()) fail(BI_INVALID_ARGUMENT, choice().error);
  return choice().isa;
}

}  // namespace bi

extern "C" {
uint32_t bi_abi_version(void) { return BI_ABI_VERSION; }
const char *bi_version(void) { return BI_VERSION; }
const char *bi_cpu_isa(void) {
  const bi::Choice &choice = bi::choice();
  return choice.error.empty() ? bi::isa_name(choice.isa) : "invalid";
}
const char *bi_last_error(void) { return bi::last_error; }
void bi_set_run(bi_run run) { bi::installed_run.store(run, std::memory_order_release); }
}
