// SPDX-License-Identifier: Apache-2.0
//
// A kernel is one source, compiled once for each instruction set. Its header declares it for all of
// them; the operator's entry calls the one for this machine:
//
//   BI_KERNEL(void, sum_blocks, (const SumArgs &args, int64_t begin, int64_t end))
//   ...
//   BI_CALL(sum_blocks)(args, 0, n);
//
// BI_CALL_MATRIX is for kernels that use matrix instructions and are compiled for those instruction
// sets too (cmake/cpu.cmake: bi_matrix_kernels). In a kernel's own source only the declaration for
// its instruction set is seen.
#ifndef BI_CPU_DISPATCH_H
#define BI_CPU_DISPATCH_H

#include <cstddef>

#include "isa.h"
#include "runtime.h"

#define BI_DECLARE_KERNEL(isa, lanes, result, name, parameters) \
  namespace isa {                                               \
  result name parameters;                                       \
  }
#ifdef BI_ISA
#define BI_KERNEL(result, name, parameters) BI_DECLARE_KERNEL(BI_ISA, , result, name, parameters)
#else
#define BI_KERNEL(result, name, parameters) BI_EACH_ISA(BI_DECLARE_KERNEL, result, name, parameters)
#define BI_LANES_KERNEL(isa, lanes, name) &::bi::lanes::name,
#define BI_MATRIX_KERNEL(isa, lanes, name) &::bi::isa::name,
#define BI_CALL(name) (*::bi::pick_kernel({BI_EACH_ISA(BI_LANES_KERNEL, name)}))
#define BI_CALL_MATRIX(name) (*::bi::pick_kernel({BI_EACH_ISA(BI_MATRIX_KERNEL, name)}))

namespace bi {

// The kernel for chosen_isa(). Throws Error where that does.
template <typename F, size_t kCount>
F *pick_kernel(F *const (&kernels)[kCount]) {
  return kernels[static_cast<size_t>(chosen_isa())];
}

}  // namespace bi
#endif

#endif
