// SPDX-License-Identifier: Apache-2.0
//
// The source of every choice of the fuzzer. Of its own, because the distributions of <random>
// differ between standard libraries and a seed has to mean the same calls everywhere.
#ifndef BI_FUZZ_RANDOM_H
#define BI_FUZZ_RANDOM_H

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace bi_fuzz {

class Random {
 public:
  // The generator of call `call` of run `seed`: any call can be repeated without those before it.
  Random(uint64_t seed, uint64_t call) : state_(seed * 0xd1342543de82ef95u) {
    state_ ^= next() + call * 0x9e3779b97f4a7c15u;
    next();
  }
  // SplitMix64.
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t n) {
    return static_cast<int64_t>((next() >> 32) * static_cast<uint64_t>(n) >> 32);
  }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool percent(int64_t chance) { return below(100) < chance; }
  // In [-1, 1).
  double symmetric() { return static_cast<double>(static_cast<int64_t>(next())) * 0x1p-63; }
  template <typename T>
  T one_of(std::initializer_list<T> choices) {
    return choices.begin()[below(static_cast<int64_t>(choices.size()))];
  }

 private:
  uint64_t state_;
};

}  // namespace bi_fuzz

#endif
