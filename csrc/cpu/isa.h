// SPDX-License-Identifier: Apache-2.0
//
// The instruction sets that kernels are compiled for, by architecture, in ascending order of
// preference: BI_EACH_ISA(X, ...) is X(name, lanes, ...) for each. `lanes` is the instruction set
// whose sixteen lanes it has: what adds only matrix instructions shares all other kernels with it.
// cmake/cpu.cmake has the same names and the compiler's flags for them.
#ifndef BI_CPU_ISA_H
#define BI_CPU_ISA_H

#if defined(BI_TEST_MODELS)
// AMX's order of additions in software, in builds with tests; never chosen by itself.
#define BI_EACH_MODEL(X, ...) X(amx_model, portable, __VA_ARGS__)
#else
#define BI_EACH_MODEL(X, ...)
#endif

#if defined(__x86_64__)
#define BI_EACH_ISA(X, ...)           \
  BI_EACH_MODEL(X, __VA_ARGS__)       \
  X(portable, portable, __VA_ARGS__)  \
  X(avx2, avx2, __VA_ARGS__)          \
  X(avx512, avx512, __VA_ARGS__)      \
  X(avx512_bf16, avx512, __VA_ARGS__) \
  X(amx, avx512, __VA_ARGS__)
#elif defined(__aarch64__)
#define BI_EACH_ISA(X, ...) X(portable, portable, __VA_ARGS__) X(neon, neon, __VA_ARGS__)
#else
#define BI_EACH_ISA(X, ...) X(portable, portable, __VA_ARGS__)
#endif

namespace bi {

#define BI_ENUMERATOR(isa, ...) isa,
enum class Isa { BI_EACH_ISA(BI_ENUMERATOR, ) };
#undef BI_ENUMERATOR

const char *isa_name(Isa isa);

// The best one this machine runs, or what BI_CPU_ISA asks for. Throws Error for a name that is
// unknown or that the machine does not run.
Isa chosen_isa();

}  // namespace bi

#endif
