// SPDX-License-Identifier: Apache-2.0
//
// bi_matmul plain, batched and packed, and bi_grouped_matmul (csrc/ops/matmul/README.md).
#include <algorithm>
#include <cstring>

#include "arguments.h"
#include "operators.h"
#include "shapes.h"

namespace bi_fuzz {
namespace {

// How an instruction set multiplies bf16; elsewhere, and for other types, one chain.
struct Steps {
  bool flush = false;  // subnormal numbers count as zeros
  bool tiles = false;  // AMX: two chains for each 32 elements
};

Steps steps_of(int32_t dtype) {
  const std::string isa = bi_cpu_isa();
  if (dtype != BI_BFLOAT16) return {};
  const bool tiles = isa == "amx" || isa == "amx_model";
  return {tiles || isa == "avx512_bf16", tiles};
}

double operand(double x, bool flush) {
  return flush && std::fabs(x) < kBfloat16.normal() ? std::copysign(0.0, x) : x;
}

// One element: the chain over k of a's row and b's column, each given by its first element and the
// step to the next one in row-major order.
struct Factor {
  const std::vector<double> &values;
  int64_t first, step;
  double operator[](int64_t k) const { return values[static_cast<size_t>(first + k * step)]; }
};

// The sum of products in the order of the instruction set.
Real placed_product(const Factor &a, const Factor &b, int64_t count, const Steps &steps) {
  auto continued = [&](Real chain, int64_t k) {
    const double x = operand(a[k], steps.flush), y = operand(b[k], steps.flush);
    return multiply_add(Real::exactly(x), Real::exactly(y), chain, steps.flush);
  };
  Real sum;
  if (!steps.tiles) {
    for (int64_t k = 0; k < count; ++k) sum = continued(sum, k);
    return sum;
  }
  constexpr int64_t kTile = 32;
  const Rounding rounding = {kFloat32, steps.flush};
  for (int64_t first = 0; first < count; first += kTile) {
    Real chains[2];
    for (int64_t k = first; k < std::min(count, first + kTile); ++k)
      chains[k % 2] = continued(chains[k % 2], k);
    sum = rounded(sum_of(sum, rounded(sum_of(chains[0], chains[1]), rounding)), rounding);
  }
  return sum;
}

Expected expected_product(const Factor &a, const Factor &b, int64_t count, const double *bias,
                          const Steps &steps) {
  Real chain = placed_product(a, b, count, steps);
  double exact = 0.0, size = 0.0;
  for (int64_t k = 0; k < count; ++k) {
    const double product = operand(a[k], steps.flush) * operand(b[k], steps.flush);
    exact += product;
    size += std::fabs(product);
  }
  const double unit = kFloat32.unit();
  // The second term: where a product or a sum is too small for fp32, or flushed.
  double error = static_cast<double>(count) * (unit * size + kFloat32.normal());
  if (bias != nullptr) {
    chain = add(chain, Real::exactly(*bias));
    exact += *bias;
    error += unit * (std::fabs(exact) + error);
  }
  return {chain, exact, error};
}

int64_t small_extent(Random &random) {
  if (random.percent(4)) return 0;
  return random.percent(85) ? random.between(1, 12) : random.between(13, 150);
}

struct Extents {
  int64_t m, k, n;
};

Extents random_extents(Random &random) {
  Extents e = {small_extent(random), small_extent(random), small_extent(random)};
  if (random.percent(15)) {  // more than one block of k
    e.k = random.between(200, 1100);
    e.m = std::min<int64_t>(e.m, 7);
  }
  while (e.m * e.n * e.k > 40000) (e.m > e.n ? e.m : e.n) /= 2;
  return e;
}

// Along a row, along a column (a linear layer's weight), or any strides.
Tensor random_matrix(Random &random, int32_t dtype, const Shape &shape) {
  const int last = static_cast<int>(shape.size()) - 1;
  return random_input(random, dtype, shape, random.one_of({last, last - 1, -1}));
}

// The packed form of b in a buffer of its size.
Buffer pack(Random &random, Report &report, const Tensor &b, int64_t experts, const Extents &e) {
  const size_t size = bi_matmul_packed_size(experts, e.k, e.n, b.dtype());
  Buffer packed(size, random_edge(random));
  const bi_tensor view = b.view();
  report.succeeded(bi_matmul_pack(&view, packed.data(), size, random_threads(random)));
  return packed;
}

// A packed weight that is none, or not of the size that was said.
Spoilt spoil_packed(Random &random, Buffer &packed, const void **pointer, size_t *size) {
  const std::vector<std::string> names = {"packed", "k", "n", "experts"};
  switch (random.below(3)) {
    case 0:
      *pointer = nullptr;
      return {"packed of NULL", {"packed", "b"}};
    case 1:
      *size = random.one_of<size_t>({0, 1, 63, packed.size() - 1});
      return {"packed of another size", names};
    default:
      break;
  }
  // The header: magic, dtype, experts, k, n. Each field matters.
  int64_t field = 0;
  const int64_t index = random.below(5);
  std::memcpy(&field, packed.data() + 8 * index, 8);
  field = random.one_of<int64_t>({field + 1000, -1, INT64_MAX, INT64_MAX - 14, INT64_MIN});
  std::memcpy(packed.data() + 8 * index, &field, 8);
  return {"packed with a damaged header", {"packed", "k", "n", "experts", "out", "bias"}};
}

// Sizes of packed weights, absurd ones too: 0 where the size does not fit in 64 bits.
void size_packed(Random &random, Report &report) {
  const int32_t dtype = random_dtype(random);
  int64_t sizes[3];
  for (int64_t &size : sizes)
    size = random.one_of<int64_t>({0, 1, 7, 64, int64_t{1} << 31, int64_t{1} << 45, INT64_MAX,
                                   INT64_MAX - 1, INT64_MAX - 15, -1, INT64_MIN});
  const auto [experts, k, n] = sizes;
  report.describe("packed size of " + text_of({experts, k, n}));
  const bool negative = experts < 0 || k < 0 || n < 0;
  // In floating point: what fits and what does not are far apart.
  const double words = dtype == BI_FLOAT32 ? static_cast<double>(k) : std::ceil(0.5 * k);
  const double expert = 4.0 * words * 16.0 * std::ceil(n / 16.0);
  const double expected = 64.0 + static_cast<double>(experts) * expert;
  const size_t found = bi_matmul_packed_size(experts, k, n, dtype);
  // Each product on the way has to fit too, one expert's even where there is none.
  const bool fits = std::max(expected, expert) < 0x1p62 && k < INT64_MAX / 2 && n < INT64_MAX / 2;
  if (found == 0
          ? !negative && fits
          : negative || std::fabs(expected - static_cast<double>(found)) > 0x1p-50 * expected)
    report.finding("found a size of " + std::to_string(found));
}

// A weight of 2^46 equal rows: no machine has the memory to pack the other operand.
void refuse_giant(Random &random, Report &report) {
  const int32_t dtype = random_dtype(random);
  Tensor element = random_input(random, dtype, {1});
  Tensor out(random, dtype, {1, 1}, {Role::output, 1});
  out.remember();
  const int64_t k = random.one_of<int64_t>({int64_t{1} << 46, int64_t{1} << 60, INT64_MAX});
  const int64_t a_shape[] = {1, k}, b_shape[] = {k, 1}, stride[] = {0, 0};
  const bi_tensor a = {element.view().data, a_shape, stride, 2, dtype};
  const bi_tensor b = {element.view().data, b_shape, stride, 2, dtype};
  const bi_tensor c = out.view();
  report.describe("a of 2^46 columns or more");
  const bi_status status = bi_matmul(&a, &b, nullptr, &c, 1);
  report.returned(status, {"a giant workspace", {"out of memory", "a", "b"}}, {{"out", &out}});
}

}  // namespace

void fuzz_matmul(Random &random, Report &report) {
  if (random.percent(1)) return refuse_giant(random, report);
  if (random.percent(1)) return size_packed(random, report);
  const int32_t dtype = random_dtype(random);
  const Extents e = random_extents(random);
  const bool batched = random.percent(30);
  const bool packed = random.percent(40);
  const int64_t batch = batched ? random.between(random.percent(5) ? 0 : 1, 4) : 1;
  Shape a_shape = {e.m, e.k}, b_shape = {e.k, e.n}, out_shape = {e.m, e.n};
  if (batched) {
    a_shape.insert(a_shape.begin(), batch);
    out_shape.insert(out_shape.begin(), batch);
    if (!packed) b_shape.insert(b_shape.begin(), batch);
  }
  const Tensor a = random_matrix(random, dtype, a_shape);
  const Tensor b = random_matrix(random, dtype, b_shape);
  const bool has_bias = random.percent(40);
  const Tensor bias = random_input(random, dtype, {e.n});
  const int last = static_cast<int>(out_shape.size()) - 1;
  Tensor out(random, dtype, out_shape, {Role::output, last});
  out.remember();
  report.describe("a", a);
  report.describe("b", b);
  report.describe("out", out);
  report.describe(packed ? "packed" : "plain");
  if (has_bias) report.describe("bias", bias);

  std::vector<Argument> arguments;
  arguments.reserve(4);
  arguments.emplace_back("a", a);
  if (!packed) arguments.emplace_back("b", b);
  arguments.emplace_back("out", out);
  if (has_bias) arguments.emplace_back("bias", bias);
  Buffer buffer(0, Edge::heap);
  if (packed) buffer = pack(random, report, b, 1, e);
  const void *weight = buffer.data();
  size_t size = buffer.size();
  int threads = random_threads(random);
  Spoilt spoilt;
  if (has_bias) arguments.back().required = false;
  if (random.percent(20))
    spoilt = packed && random.percent(40) ? spoil_packed(random, buffer, &weight, &size)
                                          : spoil(random, arguments, &threads);
  if (packed) spoilt.names.push_back("packed");
  const size_t at = packed ? 1 : 2;
  const bi_tensor *const bias_view = has_bias ? arguments.back().pointer() : nullptr;
  const bi_status status = packed ? bi_matmul_packed(arguments[0].pointer(), weight, size,
                                                     bias_view, arguments[at].pointer(), threads)
                                  : bi_matmul(arguments[0].pointer(), arguments[1].pointer(),
                                              bias_view, arguments[at].pointer(), threads);
  for (const Tensor *input : {&a, &b, &bias}) report.untouched("an input", *input, true);
  if (!report.returned(status, spoilt, {{"out", &out}})) return;

  const std::vector<double> x = a.values(), y = b.values(), z = bias.values();
  for (int64_t i = 0; i < out.count(); ++i) {
    const int64_t column = i % e.n, row = i / e.n, member = row / e.m;
    const Factor left = {x, row * e.k, 1};
    const Factor right = {y, packed ? column : member * e.k * e.n + column, e.n};
    const double *const own = has_bias ? &z[static_cast<size_t>(column)] : nullptr;
    report.element("out", out, i, expected_product(left, right, e.k, own, steps_of(dtype)));
  }
}

void fuzz_grouped_matmul(Random &random, Report &report) {
  const int32_t dtype = random_dtype(random);
  Extents e = random_extents(random);
  const bool packed = random.percent(50);
  const int64_t experts = e.m == 0 ? random.below(4) : random.between(1, 6);
  std::vector<int64_t> ends(static_cast<size_t>(experts));
  for (int64_t &end : ends) end = random.between(0, e.m);
  std::sort(ends.begin(), ends.end());
  if (experts > 0) ends.back() = e.m;
  const Tensor a = random_matrix(random, dtype, {e.m, e.k});
  const Tensor b = random_matrix(random, dtype, {experts, e.k, e.n});
  Tensor out(random, dtype, {e.m, e.n}, {Role::output, 1});
  out.remember();
  report.describe("a", a);
  report.describe("b", b);
  report.describe("out", out);
  report.describe((packed ? "packed, ends=" : "plain, ends=") + text_of(ends));

  std::vector<Argument> arguments;
  arguments.reserve(3);
  arguments.emplace_back("a", a);
  arguments.emplace_back("out", out);
  arguments.emplace_back("b", b);
  if (packed) arguments.pop_back();
  Buffer buffer(0, Edge::heap);
  if (packed) buffer = pack(random, report, b, experts, e);
  const void *weight = packed ? buffer.data() : nullptr;
  size_t size = buffer.size();
  int threads = random_threads(random);
  int64_t number = experts;
  const int64_t *list = ends.data();
  Spoilt spoilt;
  if (random.percent(20)) {
    const int64_t kind = random.below(6);
    const std::vector<std::string> names = {"group_list", "experts", "packed", "b"};
    if (kind == 0 && packed) {
      spoilt = spoil_packed(random, buffer, &weight, &size);
    } else if (kind == 1 && experts > 0) {
      ends[static_cast<size_t>(random.below(experts))] =
          random.one_of<int64_t>({-1, e.m + 1, INT64_MIN, INT64_MAX});
      spoilt = {"group_list with a wrong end", {"group_list"}};
    } else if (kind == 2 && experts > 0) {
      list = nullptr;
      spoilt = {"group_list of NULL", {"group_list"}};
    } else if (kind == 3) {
      number = random.one_of<int64_t>({-1, INT64_MIN});
      spoilt = {"experts of " + std::to_string(number), {"experts"}};
    } else {
      spoilt = spoil(random, arguments, &threads);
      // One row more or less is one that group_list does not have; no b is as if packed were meant.
      if (spoilt.done())
        for (const std::string &name : names) spoilt.names.push_back(name);
    }
  }
  const bi_status status =
      bi_grouped_matmul(arguments[0].pointer(), packed ? nullptr : arguments[2].pointer(), weight,
                        size, list, number, arguments[1].pointer(), threads);
  for (const Tensor *input : {&a, &b}) report.untouched("an input", *input, true);
  if (!report.returned(status, spoilt, {{"out", &out}})) return;

  const std::vector<double> x = a.values(), y = b.values();
  int64_t expert = 0;
  for (int64_t i = 0; i < out.count(); ++i) {
    const int64_t column = i % e.n, row = i / e.n;
    while (ends[static_cast<size_t>(expert)] <= row) ++expert;
    const Factor left = {x, row * e.k, 1};
    const Factor right = {y, expert * e.k * e.n + column, e.n};
    report.element("out", out, i, expected_product(left, right, e.k, nullptr, steps_of(dtype)));
  }
}

}  // namespace bi_fuzz
