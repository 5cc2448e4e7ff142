// SPDX-License-Identifier: Apache-2.0
#include "isa.h"

#include <cstddef>
#include <cstdlib>
#include <string>

#include "runtime.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace bi {
namespace {

#if defined(__x86_64__)
// Clang before 17 has no name for it in __builtin_cpu_supports.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}
#endif

bool machine_runs(Isa isa) {
  switch (isa) {
    case Isa::portable:
      return true;
#if defined(__x86_64__)
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    case Isa::avx512:
      return machine_runs(Isa::avx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
    case Isa::avx512_bf16:
      return machine_runs(Isa::avx512) && __builtin_cpu_supports("avx512bf16");
#elif defined(__aarch64__)
    case Isa::neon:  // part of the architecture
      return true;
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
  std::string known, run;
  for (Isa isa : kIsas) {
    const bool runs = machine_runs(isa);
    if (runs && (wanted.empty() || wanted == isa_name(isa))) choice.isa = isa;  // the last is best
    known += (known.empty() ? "" : ", ") + std::string(isa_name(isa));
    if (runs) run += (run.empty() ? "" : ", ") + std::string(isa_name(isa));
  }
  if (wanted.empty() || wanted == isa_name(choice.isa)) return choice;
  for (Isa isa : kIsas)
    if (wanted == isa_name(isa))
      choice.error = "BI_CPU_ISA: this machine does not run '" + wanted + "'; it runs " + run;
  if (choice.error.empty())
    choice.error = "BI_CPU_ISA: unknown instruction set '" + wanted + "'; expected one of " + known;
  return choice;
}

const Choice &choice() {
  static const Choice chosen = choose();
  return chosen;
}

}  // namespace

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

extern "C" const char *bi_cpu_isa(void) {
  const bi::Choice &choice = bi::choice();
  return choice.error.empty() ? bi::isa_name(choice.isa) : "invalid";
}
