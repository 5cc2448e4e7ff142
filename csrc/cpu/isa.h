// SPDX-License-Identifier: Apache-2.0
//
// The instruction sets that kernels are compiled for, by architecture, in ascending order of
// preference: BI_EACH_ISA(X, ...) is X(name, ...) for each. cmake/cpu.cmake has the same names and
// the compiler's flags for them.
#ifndef BI_CPU_ISA_H
#define BI_CPU_ISA_H

#if defined(__x86_64__)
#define BI_EACH_ISA(X, ...) \
  X(portable, __VA_ARGS__) X(avx512, __VA_ARGS__) X(avx512_bf16, __VA_ARGS__)
#else
#define BI_EACH_ISA(X, ...) X(portable, __VA_ARGS__)
#endif

namespace bi {

#define BI_ENUMERATOR(isa, ...) isa,
enum class Isa { BI_EACH_ISA(BI_ENUMERATOR, ) };
#undef BI_ENUMERATOR

}  // namespace bi

#endif
