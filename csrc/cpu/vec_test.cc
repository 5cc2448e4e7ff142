// SPDX-License-Identifier: Apache-2.0
//
// The conversions of dtype.h against the definition of their formats, and each operation of vec.h
// against its lane-by-lane statement, for the instruction set that was chosen.
#include <memory>

#include "testing.h"
#include "vec_operations.h"

namespace {

using bi_test::bits;
using bi_test::expect;
using bi_test::from_bits;
using bi_test::nearest_f16;
using bi_test::value_of_f16;
using bi_test::Values;

constexpr int kLanes = 16;
constexpr float kInf = HUGE_VALF;

const bi::VecOperations &chosen() {
#define BI_IF_CHOSEN(isa, lanes, ...) \
  if (std::strcmp(bi_cpu_isa(), #isa) == 0) return bi::lanes::vec_operations();
  BI_EACH_ISA(BI_IF_CHOSEN, )
#undef BI_IF_CHOSEN
  std::abort();
}

// ---- fp16 ---------------------------------------------------------------------------------------

void test_f16_widens_exactly() {
  int64_t wrong = 0, lost = 0;
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const bi::f16 x{static_cast<uint16_t>(h)};
    const float f = bi::to_float(x);
    wrong += bits(f) != bits(value_of_f16(x.bits)) || std::signbit(f) != (h >> 15 == 1);
    const uint16_t quiet = std::isnan(f) ? 0x0200 : 0;
    lost += bi::to_f16(f).bits != (x.bits | quiet);
  }
  expect(wrong == 0, "each of the 65536 fp16 has its fp32 value");
  expect(lost == 0, "each of the 65536 fp16 comes back, NaN quieted");
}

void expect_rounded(float f) {
  const uint16_t found = bi::to_f16(f).bits;
  if (std::isnan(f))
    expect((found & 0x7e00) == 0x7e00, "NaN becomes a quiet NaN");
  else
    expect(found == nearest_f16(f), "fp16 nearest to " + std::to_string(bits(f)));
}

void test_f16_rounds_to_nearest_even() {
  // Around each value and around each midpoint of neighbours: the fp32 before, at and after it.
  for (uint32_t h = 0; h < 0x7c00; ++h) {
    const float value = value_of_f16(static_cast<uint16_t>(h));
    const float next = h + 1 == 0x7c00 ? 65536.0f : value_of_f16(static_cast<uint16_t>(h + 1));
    for (const float x : {value, value + (next - value) / 2}) {
      for (const float y : {std::nextafter(x, -kInf), x, std::nextafter(x, kInf)}) {
        expect_rounded(y);
        expect_rounded(-y);
      }
    }
  }
  Values random(1);
  for (int i = 0; i < 1000000; ++i) expect_rounded(from_bits(random.engine()));
  for (const float f : {0.0f, -0.0f, 65519.996f, 65520.0f, 1e38f, kInf, from_bits(1),
                        from_bits(0x7f800001), from_bits(0xffffffff)})
    expect_rounded(f);
}

// ---- lanes --------------------------------------------------------------------------------------

struct Lanes {
  float lane[kLanes];
};

// Any bits, often a value that is special to some operation.
float any_value(Values &random) {
  constexpr float kSpecial[] = {0.0f,  -0.0f,      1.0f,         -1.0f,     0.5f,     1.5f,
                                2.5f,  kInf,       -kInf,        NAN,       65504.0f, 65520.0f,
                                3e38f, -3.4e38f,   0x1.8p-149f,  0x1p-126f, 0x1p-24f, 0x1p-25f,
                                88.0f, 8388609.0f, 0x1.ffp-127f, -2.5f};
  const auto kind = random.below(4);
  if (kind == 0) return kSpecial[random.below(sizeof(kSpecial) / sizeof(kSpecial[0]))];
  if (kind == 1) return random.next();
  return from_bits(random.engine());
}
Lanes any_lanes(Values &random) {
  Lanes x;
  for (float &lane : x.lane) lane = any_value(random);
  return x;
}

template <typename Scalar>
void expect_operation(const char *name,
                      void (*operation)(const float *, const float *, const float *, float *),
                      Scalar &&scalar, bool scaling = false) {
  Values random(2);
  int64_t wrong = 0;
  for (int round = 0; round < 4000; ++round) {
    Lanes a = any_lanes(random), b = any_lanes(random), c = any_lanes(random), out;
    if (scaling) {
      for (float &lane : a.lane)
        if (std::fabs(lane) < 0.5f) lane = std::copysign(lane + 1.0f, lane);
      for (float &lane : b.lane) lane = static_cast<float>(random.below(507) - 252);
    }
    operation(a.lane, b.lane, c.lane, out.lane);
    for (int i = 0; i < kLanes; ++i)
      wrong += bits(out.lane[i]) != bits(scalar(a.lane[i], b.lane[i], c.lane[i]));
  }
  expect(wrong == 0, std::string(name) + ": " + std::to_string(wrong) + " lanes differ");
}

void test_operations_are_their_scalar_statements() {
  const bi::VecOperations &v = chosen();
  expect_operation("add", v.add, [](float a, float b, float) { return a + b; });
  expect_operation("subtract", v.subtract, [](float a, float b, float) { return a - b; });
  expect_operation("multiply", v.multiply, [](float a, float b, float) { return a * b; });
  expect_operation("divide", v.divide, [](float a, float b, float) { return a / b; });
  expect_operation("fma", v.fma, [](float a, float b, float c) { return std::fma(a, b, c); });
  expect_operation("max", v.max, [](float a, float b, float) { return a > b ? a : b; });
  expect_operation("min", v.min, [](float a, float b, float) { return a < b ? a : b; });
  expect_operation("sqrt", v.sqrt, [](float a, float, float) { return std::sqrt(a); });
  expect_operation("round", v.round, [](float a, float, float) { return std::nearbyint(a); });
  expect_operation(
      "scale2", v.scale2,
      [](float x, float n, float) { return std::ldexp(x, static_cast<int>(n)); }, true);
  expect_operation("select_lt", v.select_lt,
                   [](float x, float y, float a) { return x < y ? a : y; });
  expect_operation("select_nan", v.select_nan,
                   [](float x, float a, float b) { return std::isnan(x) ? a : b; });
  expect_operation("round_bf16", v.round_bf16,
                   [](float a, float, float) { return bi::to_float(bi::to_bf16(a)); });
  expect_operation("round_f16", v.round_f16,
                   [](float a, float, float) { return bi::to_float(bi::to_f16(a)); });
}

void test_lanes_in_order() {
  const bi::VecOperations &v = chosen();
  Values random(3);
  for (int round = 0; round < 200; ++round) {
    Lanes x;
    for (float &lane : x.lane) lane = random.next();
    Lanes sum = x;
    for (int half = 8; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) sum.lane[i] += sum.lane[i + half];
    expect(bits(v.reduce_add(x.lane)) == bits(sum.lane[0]), "reduce_add folds halves");
    expect(v.largest(x.lane) == *std::max_element(x.lane, x.lane + kLanes), "largest");
    expect(bits(v.first(x.lane)) == bits(x.lane[0]), "first");
  }
  const Lanes x = any_lanes(random);
  for (int begin = 0; begin <= kLanes; ++begin)
    for (int end = 0; end <= kLanes; ++end) {
      Lanes out;
      v.keep(x.lane, begin, end, 7.0f, out.lane);
      for (int i = 0; i < kLanes; ++i)
        expect(bits(out.lane[i]) == bits(i >= begin && i < end ? x.lane[i] : 7.0f), "keep");
    }
}

// ---- memory -------------------------------------------------------------------------------------

// All 65536 patterns of each narrow type, and as many fp32: bit for bit what dtype.h gives.
void test_narrow_types() {
  const bi::VecOperations &v = chosen();
  Values random(4);
  int64_t wrong = 0;
  for (uint32_t h = 0; h < 0x10000; h += kLanes) {
    bi::bf16 b[kLanes];
    bi::f16 f[kLanes];
    Lanes from_b, from_f, x = any_lanes(random);
    for (uint32_t i = 0; i < kLanes; ++i) b[i].bits = f[i].bits = static_cast<uint16_t>(h + i);
    v.load_bf16(b, from_b.lane);
    v.load_f16(f, from_f.lane);
    for (int i = 0; i < kLanes; ++i)
      wrong += bits(from_b.lane[i]) != bits(bi::to_float(b[i])) ||
               bits(from_f.lane[i]) != bits(bi::to_float(f[i]));
    v.store_bf16(x.lane, b);
    v.store_f16(x.lane, f);
    for (int i = 0; i < kLanes; ++i)
      wrong += b[i].bits != bi::to_bf16(x.lane[i]).bits || f[i].bits != bi::to_f16(x.lane[i]).bits;
  }
  expect(wrong == 0, "narrow types: " + std::to_string(wrong) + " elements differ");
}

// The first n elements and nothing else: the memory ends there (the sanitizers would see), and what
// lies behind a store stays.
template <typename T, typename Load, typename Store>
void expect_partial(Load load_n, Store store_n) {
  for (int n = 0; n <= kLanes; ++n) {
    Values random(5);
    const std::unique_ptr<T[]> memory(new T[static_cast<size_t>(n)]);  // for n = 0 no null pointer
    for (int i = 0; i < n; ++i) memory[static_cast<size_t>(i)] = bi::from_float<T>(random.next());
    Lanes x;
    load_n(memory.get(), n, 3.0f, x.lane);
    for (int i = 0; i < kLanes; ++i)
      expect(x.lane[i] == (i < n ? bi::to_float(memory[static_cast<size_t>(i)]) : 3.0f), "load_n");
    const Lanes y = any_lanes(random);
    store_n(y.lane, memory.get(), n);
    T behind[kLanes + 1];
    for (T &element : behind) element = bi::from_float<T>(7.0f);
    store_n(y.lane, behind, n);
    for (int i = 0; i <= kLanes; ++i) {
      const float expected = i < n ? bi::to_float(bi::from_float<T>(y.lane[i])) : 7.0f;
      expect(bits(bi::to_float(behind[i])) == bits(expected), "store_n");
      if (i < n)
        expect(bits(bi::to_float(memory[static_cast<size_t>(i)])) == bits(expected), "store_n");
    }
  }
}

void test_partial_vectors() {
  const bi::VecOperations &v = chosen();
  expect_partial<float>(v.load_n, v.store_n);
  expect_partial<bi::bf16>(v.load_n_bf16, v.store_n_bf16);
  expect_partial<bi::f16>(v.load_n_f16, v.store_n_f16);
}

void tests() {
  test_f16_widens_exactly();
  test_f16_rounds_to_nearest_even();
  test_operations_are_their_scalar_statements();
  test_lanes_in_order();
  test_narrow_types();
  test_partial_vectors();
}

}  // namespace

int main() { return bi_test::finish(tests); }
