// SPDX-License-Identifier: Apache-2.0
#include "isa.h"

#include <cstddef>
#include <cstdlib>
#include <string>

#include "runtime.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace bi {
namespace {

#if defined(__x86_64__)
// Clang before 17 has no name for it in __builtin_cpu_supports.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

// The tiles' bf16 products are there, the system keeps the tiles' state, and it gives this process,
// all its threads, the permission that it reserves for so large a state (Linux:
// Documentation/arch/x86/xstate.rst).
bool may_use_amx() {
  unsigned a, b, c, d;
  constexpr unsigned kTiles = 1u << 24, kBf16 = 1u << 22, kOsXsave = 1u << 27;  // leaves 7 and 1
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kTiles) == 0 || (d & kBf16) == 0)
    return false;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & kOsXsave) == 0) return false;
  unsigned low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTileConfig = 1u << 17, kTileData = 1u << 18;
  if ((low & kTileConfig) == 0 || (low & kTileData) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileDataFeature = 18;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileDataFeature) == 0;
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
    case Isa::amx:
      return machine_runs(Isa::avx512) && may_use_amx();
#if defined(BI_TEST_MODELS)
    case Isa::amx_model:
      return true;
#endif
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

// Names, of those that the machine runs or of all.
std::string names(bool of_machine) {
  std::string text;
  for (Isa isa : kIsas)
    if (!of_machine || machine_runs(isa))
      text += (text.empty() ? "" : ", ") + std::string(isa_name(isa));
  return text;
}

Choice choose() {
  Choice choice;
  const char *env = std::getenv("BI_CPU_ISA");
  const std::string wanted = env != nullptr ? env : "";
  for (Isa isa : kIsas) {
    if (wanted.empty()) {
      if (machine_runs(isa)) choice.isa = isa;  // the last one is the best
    } else if (wanted == isa_name(isa)) {
      choice.isa = isa;
      if (!machine_runs(isa))
        choice.error =
            "BI_CPU_ISA: this machine does not run '" + wanted + "'; it runs " + names(true);
      return choice;
    }
  }
  if (!wanted.empty())
    choice.error =
        "BI_CPU_ISA: unknown instruction set '" + wanted + "'; expected one of " + names(false);
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
