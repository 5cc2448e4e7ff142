// SPDX-License-Identifier: Apache-2.0
//
// The fuzzer's negative control: bi_reduce_sum with the fault that BI_FUZZ_FAULT names. Defined in
// the executable, it comes before the library's, which it calls.
#include <dlfcn.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "format.h"

namespace {

using bi_fuzz::bytes_of;

// Byte offset of the last element in memory.
int64_t last_element(const bi_tensor &t) {
  int64_t offset = 0;
  for (int d = 0; d < t.ndim; ++d)
    if (t.shape[d] > 1 && t.stride[d] > 0) offset += (t.shape[d] - 1) * t.stride[d];
  return offset * bytes_of(t.dtype);
}

bool empty(const bi_tensor &t) {
  for (int d = 0; d < t.ndim; ++d)
    if (t.shape[d] == 0) return true;
  return false;
}

}  // namespace

extern "C" bi_status bi_reduce_sum(const bi_tensor *x, const int32_t *dims, int32_t ndims,
                                   const bi_tensor *out, int threads) {
  const auto next = reinterpret_cast<decltype(&bi_reduce_sum)>(dlsym(RTLD_NEXT, "bi_reduce_sum"));
  const bi_status status = next(x, dims, ndims, out, threads);
  const std::string fault = std::getenv("BI_FUZZ_FAULT");
  if (status != BI_OK) return fault == "accept" ? BI_OK : status;
  if (empty(*out)) return status;
  auto *const bytes = static_cast<unsigned char *>(out->data);
  double first = bi_fuzz::read_element(out->dtype, bytes);
  if (fault == "value" && std::isfinite(first))
    first += 0.01 * (1.0 + std::fabs(first));
  else if (fault == "finite" && !std::isfinite(first))
    first = 1.0;
  else if (fault == "nan" && std::isinf(first))
    first = std::nan("");
  if (fault != "none" && fault != "read")
    bi_fuzz::write_element(out->dtype, bytes,
                           bi_fuzz::round_to(bi_fuzz::format_of(out->dtype), first));
  if (fault == "beyond") bytes[last_element(*out) + bytes_of(out->dtype)] ^= 1;
  if (fault == "input" && !empty(*x)) static_cast<unsigned char *>(x->data)[0] ^= 1;
  if (fault == "read" && !empty(*x)) {
    const volatile unsigned char *const data = static_cast<unsigned char *>(x->data);
    static_cast<void>(data[last_element(*x) + bytes_of(x->dtype)]);
  }
  return status;
}
