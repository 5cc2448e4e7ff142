// SPDX-License-Identifier: Apache-2.0
//
// A kernel is one source, compiled once for each instruction set. Its header declares it for all of
// them; the operator's entry calls the one for this machine:
//
//   BI_KERNEL(void, sum_blocks, (const SumArgs &args, int64_t begin, int64_t end))
//   ...
//   BI_CALL(sum_blocks)(args, 0, n);
//
// In a kernel's own source only the declaration for its instruction set is seen.
#ifndef BI_CPU_DISPATCH_H
#define BI_CPU_DISPATCH_H

#include "runtime.h"

#ifdef BI_ISA
#define BI_KERNEL(result, name, parameters) \
  namespace BI_ISA {                        \
  result name parameters;                   \
  }
#elif defined(BI_HAVE_avx512)
#define BI_KERNEL(result, name, parameters) \
  namespace portable {                      \
  result name parameters;                   \
  }                                         \
  namespace avx512 {                        \
  result name parameters;                   \
  }                                         \
  namespace avx512_bf16 {                   \
  result name parameters;                   \
  }
#define BI_CALL(name) \
  (*::bi::pick_kernel(&::bi::portable::name, &::bi::avx512::name, &::bi::avx512_bf16::name))
#else
#define BI_KERNEL(result, name, parameters) \
  namespace portable {                      \
  result name parameters;                   \
  }
#define BI_CALL(name) \
  (*::bi::pick_kernel(&::bi::portable::name, &::bi::portable::name, &::bi::portable::name))
#endif

namespace bi {

#ifndef BI_ISA
// The kernel for chosen_isa(). Throws Error where that does.
template <typename F>
F *pick_kernel(F *portable, F *avx512, F *avx512_bf16) {
  switch (chosen_isa()) {
    case Isa::avx512_bf16:
      return avx512_bf16;
    case Isa::avx512:
      return avx512;
    case Isa::portable:
      break;
  }
  return portable;
}
#endif

}  // namespace bi

#endif
