// SPDX-License-Identifier: Apache-2.0
//
// The tile registers of AMX, as amx_multiply.h uses them: eight of sixteen rows of sixteen 32-bit
// words. 0 to 3 hold two by two squares of sums, 4 and 5 rows of A, 6 and 7 columns of B.
// amx_model.h has the same members, for machines without the instructions.
#ifndef BI_MATMUL_AMX_REGISTERS_H
#define BI_MATMUL_AMX_REGISTERS_H

#include <immintrin.h>

#include <cstdint>

namespace bi {
namespace BI_ISA {

// The registers' numbers are part of the instructions, and the intrinsics of GCC 12 do not tell the
// compiler what memory they read: a barrier stands before each load.
template <int kRegister>
struct AmxRegister;
template <int kSums, int kA, int kB>
struct AmxDot;

#define BI_AMX_REGISTER(n)                                     \
  template <>                                                  \
  struct AmxRegister<n> {                                      \
    static void zero() { _tile_zero(n); }                      \
    static void load(const void *from, int64_t stride_bytes) { \
      asm volatile("" ::: "memory");                           \
      _tile_loadd(n, from, stride_bytes);                      \
    }                                                          \
    static void store(void *to, int64_t stride_bytes) {        \
      _tile_stored(n, to, stride_bytes);                       \
      asm volatile("" ::: "memory");                           \
    }                                                          \
  };
BI_AMX_REGISTER(0)
BI_AMX_REGISTER(1)
BI_AMX_REGISTER(2)
BI_AMX_REGISTER(3)
BI_AMX_REGISTER(4)
BI_AMX_REGISTER(5)
BI_AMX_REGISTER(6)
BI_AMX_REGISTER(7)
#undef BI_AMX_REGISTER

#define BI_AMX_DOT(sums, a, b)                        \
  template <>                                         \
  struct AmxDot<sums, a, b> {                         \
    static void add() { _tile_dpbf16ps(sums, a, b); } \
  };
BI_AMX_DOT(0, 4, 6)
BI_AMX_DOT(1, 4, 7)
BI_AMX_DOT(2, 5, 6)
BI_AMX_DOT(3, 5, 7)
#undef BI_AMX_DOT

struct AmxRegisters {
  // Registers 0, 1 and 4 get `upper` rows (1 to 16), 2, 3 and 5 `lower` (0: they are not used).
  // What they held is lost.
  void configure(int upper, int lower) {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t column_bytes[16] = {};
      uint8_t rows[16] = {};
    } config;
    static_assert(sizeof(config) == 64, "what ldtilecfg reads");
    const int rows[8] = {upper, upper, lower, lower, upper, lower, 16, 16};
    for (int i = 0; i < 8; ++i) {
      config.rows[i] = static_cast<uint8_t>(rows[i]);
      config.column_bytes[i] = rows[i] > 0 ? 64 : 0;
    }
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  // Gives the registers back: a thread that holds tiles is switched more slowly.
  void release() { _tile_release(); }

  template <int kRegister>
  void zero() {
    AmxRegister<kRegister>::zero();
  }
  template <int kRegister>
  void load(const void *from, int64_t stride_bytes) {
    AmxRegister<kRegister>::load(from, stride_bytes);
  }
  template <int kRegister>
  void store(void *to, int64_t stride_bytes) {
    AmxRegister<kRegister>::store(to, stride_bytes);
  }
  // sums += a times b, b being pairs of rows.
  template <int kSums, int kA, int kB>
  void dot() {
    AmxDot<kSums, kA, kB>::add();
  }
};

}  // namespace BI_ISA
}  // namespace bi

#endif
