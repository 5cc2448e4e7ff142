// SPDX-License-Identifier: Apache-2.0
//
// AMX's tile registers in software, for tests: what Intel's manual says of TILELOADD, TILESTORED,
// TILEZERO and TDPBF16PS (Software Developer's Manual, volume 2). The members are those of
// amx_registers.h.
#ifndef BI_MATMUL_AMX_MODEL_H
#define BI_MATMUL_AMX_MODEL_H

#include <cmath>
#include <cstdint>
#include <cstring>

#include "dtype.h"

namespace bi {
namespace BI_ISA {

struct AmxRegisters {
  int rows[8] = {};
  uint32_t word[8][16][16] = {};

  void configure(int upper, int lower) {
    const int configured[8] = {upper, upper, lower, lower, upper, lower, 16, 16};
    for (int i = 0; i < 8; ++i) rows[i] = configured[i];
    std::memset(word, 0, sizeof(word));
  }
  void release() { configure(0, 0); }

  template <int kRegister>
  void zero() {
    std::memset(word[kRegister], 0, sizeof(word[kRegister]));
  }
  // Rows beyond the configured ones are zeroed by a load and not written by a store.
  template <int kRegister>
  void load(const void *from, int64_t stride_bytes) {
    zero<kRegister>();
    for (int r = 0; r < rows[kRegister]; ++r)
      std::memcpy(word[kRegister][r], static_cast<const char *>(from) + r * stride_bytes, 64);
  }
  template <int kRegister>
  void store(void *to, int64_t stride_bytes) {
    for (int r = 0; r < rows[kRegister]; ++r)
      std::memcpy(static_cast<char *>(to) + r * stride_bytes, word[kRegister][r], 64);
  }

  // For each row: one chain over the even elements of the tile's K, one over the odd ones, both
  // from +0 and of fused multiply-adds; then even + odd, then that is added to the sum. All to
  // nearest even, with subnormal operands and results as zeros, whatever MXCSR says.
  template <int kSums, int kA, int kB>
  void dot() {
    for (int m = 0; m < rows[kSums]; ++m) {
      float even[16] = {}, odd[16] = {};
      for (int k = 0; k < 16; ++k)
        for (int n = 0; n < 16; ++n) {
          const uint32_t a = word[kA][m][k], b = word[kB][k][n];
          even[n] = flushed(std::fma(low_half(a), low_half(b), even[n]));
          odd[n] = flushed(std::fma(high_half(a), high_half(b), odd[n]));
        }
      for (int n = 0; n < 16; ++n) {
        float sum;
        std::memcpy(&sum, &word[kSums][m][n], sizeof(sum));
        sum = flushed(flushed(sum) + flushed(even[n] + odd[n]));
        std::memcpy(&word[kSums][m][n], &sum, sizeof(sum));
      }
    }
  }

 private:
  static float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
  static float low_half(uint32_t pair) {
    return flushed(to_float(bf16{static_cast<uint16_t>(pair)}));
  }
  static float high_half(uint32_t pair) {
    return flushed(to_float(bf16{static_cast<uint16_t>(pair >> 16)}));
  }
};

}  // namespace BI_ISA
}  // namespace bi

#endif
