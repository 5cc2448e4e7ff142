// SPDX-License-Identifier: Apache-2.0
//
// Attention against its numeric contract (../README.md): the sequence of one row as scalar code,
// and everything that must not change a bit.
#define BI_ISA test_portable
#include <numeric>

#include "exp_log.h"
#include "testing.h"

namespace {

using namespace bi_test;

// exp and log are tested on their own (csrc/cpu/exp_log_test.cc).
float exp_of(float x) { return bi::BI_ISA::exp(bi::BI_ISA::Vec::set1(x)).first(); }
float log_of(float x) { return bi::BI_ISA::log(x); }

struct Heads {
  int64_t query, kv, dims;
};

struct Mask {
  bool causal = true;
  int64_t window = -1;
  int64_t window_right = -1;
};

// One request: q [S, heads, D]; k, v [L, kv_heads, D].
struct Request {
  Tensor q, k, v;
  int64_t q_len() const { return q.shape[0]; }
  int64_t kv_len() const { return k.shape[0]; }
};

struct Result {
  Tensor out, lse;
};

Request make(Values &values, int32_t dtype, const Heads &h, int64_t q_len, int64_t kv_len) {
  return {values.tensor(dtype, {q_len, h.query, h.dims}, 2.0f),
          values.tensor(dtype, {kv_len, h.kv, h.dims}, 2.0f),
          values.tensor(dtype, {kv_len, h.kv, h.dims})};
}

// How the same requests are handed over.
struct Layout {
  int64_t block_size = 0;     // 0: not paged
  bool heads_before = false;  // paged: [blocks, kv_heads, block_size, D] in memory
  int64_t gap = 0;            // elements between heads
  uint32_t block_order = 1;
  int threads = 1;
};

float scale_of(const Heads &h) { return 1.0f / std::sqrt(static_cast<float>(h.dims)); }

std::vector<Result> attend(const std::vector<Request> &requests, const Heads &h, const Mask &mask,
                           const Layout &layout) {
  const int32_t dtype = requests[0].q.dtype;
  std::vector<int64_t> q_end, kv_end, kv_len;
  int64_t rows = 0, keys = 0, blocks = 0, most_blocks = 1;
  for (const Request &r : requests) {
    q_end.push_back(rows += r.q_len());
    kv_end.push_back(keys += r.kv_len());
    kv_len.push_back(r.kv_len());
    if (layout.block_size > 0) {
      const int64_t needed = (r.kv_len() + layout.block_size - 1) / layout.block_size;
      blocks += needed;
      most_blocks = std::max(most_blocks, needed);
    }
  }
  const int64_t head = h.dims + layout.gap;
  const Shape q_shape = {rows, h.query, h.dims}, q_stride = {h.query * head, head, 1};
  Tensor q(dtype, q_shape, q_stride), out(dtype, q_shape, q_stride);
  Tensor lse(BI_FLOAT32, {rows, h.query, 1});
  // Unused slots stay NaN, and so do three unused blocks.
  const int64_t size = layout.block_size;
  Shape kv_shape = {keys, h.kv, h.dims}, kv_stride = {h.kv * head, head, 1};
  if (size > 0) {
    kv_shape = {blocks + 3, size, h.kv, h.dims};
    kv_stride = layout.heads_before ? Shape{size * h.kv * head, head, size * head, 1}
                                    : Shape{size * h.kv * head, h.kv * head, head, 1};
  }
  Tensor k(dtype, kv_shape, kv_stride), v(dtype, kv_shape, kv_stride);
  std::vector<int32_t> order(static_cast<size_t>(blocks + 3));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(layout.block_order));
  std::vector<int32_t> table(requests.size() * static_cast<size_t>(most_blocks), -1);
  size_t next_block = 0;
  for (size_t r = 0; r < requests.size(); ++r) {
    const Request &request = requests[r];
    const int64_t first = q_end[r] - request.q_len();
    for (int64_t i = 0; i < request.q.count(); ++i)
      q.set(first * h.query * h.dims + i, request.q.get(i));
    for (int64_t p = 0; p < request.kv_len(); ++p) {
      int64_t slot = kv_end[r] - request.kv_len() + p;
      if (size > 0) {
        int32_t &block =
            table[r * static_cast<size_t>(most_blocks) + static_cast<size_t>(p / size)];
        if (p % size == 0) block = order[next_block++];
        slot = block * size + p % size;
      }
      for (int64_t i = 0; i < h.kv * h.dims; ++i) {
        k.set(slot * h.kv * h.dims + i, request.k.get(p * h.kv * h.dims + i));
        v.set(slot * h.kv * h.dims + i, request.v.get(p * h.kv * h.dims + i));
      }
    }
  }
  bi_attention_args args = {};
  args.struct_size = sizeof(args);
  args.query = q.view();
  args.key = k.view();
  args.value = v.view();
  args.block_table = size > 0 ? table.data() : nullptr;
  args.block_table_stride = most_blocks;
  args.kv_end = size > 0 ? nullptr : kv_end.data();
  args.q_end = q_end.data();
  args.kv_len = kv_len.data();
  args.requests = static_cast<int64_t>(requests.size());
  args.scale = scale_of(h);
  args.causal = mask.causal ? 1 : 0;
  args.window_left = mask.window;
  args.window_right = mask.window_right;
  args.out = out.view();
  args.lse = lse.view();
  expect_ok(bi_attention(&args, layout.threads), "bi_attention");
  std::vector<Result> results;
  for (size_t r = 0; r < requests.size(); ++r) {
    const int64_t n = requests[r].q_len();
    const int64_t first = q_end[r] - n;
    Result result{Tensor(dtype, {n, h.query, h.dims}), Tensor(BI_FLOAT32, {n, h.query, 1})};
    for (int64_t i = 0; i < result.out.count(); ++i)
      result.out.set(i, out.get(first * h.query * h.dims + i));
    for (int64_t i = 0; i < result.lse.count(); ++i)
      result.lse.set(i, lse.get(first * h.query + i));
    results.push_back(result);
  }
  return results;
}

Result attend_alone(const Request &request, const Heads &h, const Mask &mask,
                    const Layout &layout = {}) {
  return attend({request}, h, mask, layout)[0];
}

void expect_same_result(const Result &x, const Result &y, const std::string &what) {
  expect_same(x.out, y.out, what);
  expect_same(x.lse, y.lse, what + ", lse");
}

std::pair<int64_t, int64_t> seen_keys(const Request &r, const Mask &mask, int64_t row) {
  const int64_t own = r.kv_len() - r.q_len() + row;
  int64_t end = mask.causal ? own + 1 : r.kv_len();
  if (mask.window_right >= 0) end = std::min(end, own + mask.window_right + 1);
  return {mask.window >= 0 ? std::max<int64_t>(0, own - mask.window) : 0, end};
}

// The contract of one row and head, as scalar code. A tile other than 128 is a negative control.
void scalar_row(const Request &r, const Heads &h, const Mask &mask, int64_t row, int64_t head,
                int64_t tile, std::vector<float> *out, float *lse) {
  const auto [begin, end] = seen_keys(r, mask, row);
  const int64_t kv_head = head / (h.query / h.kv);
  const float inf = HUGE_VALF;
  float max = -inf, sum = 0;
  std::vector<float> o(static_cast<size_t>(h.dims), 0.0f);
  for (int64_t t = std::max<int64_t>(0, begin) / tile * tile; t < end; t += tile) {
    const int64_t from = std::max(begin, t), to = std::min(end, t + tile);
    std::vector<float> s;
    float top = max;
    for (int64_t p = from; p < to; ++p) {
      float chain = 0;
      for (int64_t d = 0; d < h.dims; ++d)
        chain = std::fma(r.q.get((row * h.query + head) * h.dims + d),
                         r.k.get((p * h.kv + kv_head) * h.dims + d), chain);
      s.push_back(chain * scale_of(h));
      if (s.back() > top) top = s.back();
    }
    const float reference = top == -inf ? 0.0f : top;
    float lane[16] = {};
    for (int64_t p = from; p < to; ++p) {
      float &score = s[static_cast<size_t>(p - from)];
      score = exp_of(score - reference);
      lane[p % 16] += score;
    }
    for (int half = 8; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
    const float alpha = exp_of(max - reference);
    sum = std::fma(sum, alpha, lane[0]);
    max = top;
    for (int64_t d = 0; d < h.dims; ++d) {
      float chain = 0;
      for (int64_t p = from; p < to; ++p)
        chain = std::fma(s[static_cast<size_t>(p - from)],
                         r.v.get((p * h.kv + kv_head) * h.dims + d), chain);
      float &element = o[static_cast<size_t>(d)];
      element = std::fma(element, alpha, chain);
    }
  }
  for (float &element : o) element = begin < end ? element / sum : 0.0f;
  *out = o;
  *lse = begin < end ? max + log_of(sum) : -inf;
}

// The bound of README.md against double.
void expect_in_bound(const Request &r, const Heads &h, const Mask &mask, int64_t row, int64_t head,
                     const Result &found) {
  const auto [begin, end] = seen_keys(r, mask, row);
  if (begin >= end) return;
  const int64_t kv_head = head / (h.query / h.kv);
  std::vector<double> s;
  double terms = 0, top = -HUGE_VAL, low = HUGE_VAL, sum = 0, largest = 0;
  for (int64_t p = begin; p < end; ++p) {
    double dot = 0, absolute = 0;
    for (int64_t d = 0; d < h.dims; ++d) {
      const double term = static_cast<double>(r.q.get((row * h.query + head) * h.dims + d)) *
                          r.k.get((p * h.kv + kv_head) * h.dims + d);
      dot += term;
      absolute += std::fabs(term);
      largest = std::max<double>(largest, std::fabs(r.v.get((p * h.kv + kv_head) * h.dims + d)));
    }
    s.push_back(dot * scale_of(h));
    terms = std::max(terms, absolute * scale_of(h));
    top = std::max(top, s.back());
    low = std::min(low, s.back());
  }
  for (double x : s) sum += std::exp(x - top);
  const double score_error = static_cast<double>(h.dims + 1) * terms;
  const double tiles = static_cast<double>((end - begin) / 128 + 2);
  const double bound =
      (2 * score_error + 4 * (top - low) + 8 * tiles + 160) * kUnit * largest * 1.01;
  for (int64_t d = 0; d < h.dims; ++d) {
    double y = 0;
    for (int64_t p = begin; p < end; ++p)
      y += std::exp(s[static_cast<size_t>(p - begin)] - top) / sum *
           r.v.get((p * h.kv + kv_head) * h.dims + d);
    const double last = r.q.dtype == BI_FLOAT32 ? 0 : rounding(std::fabs(y) + bound, r.q.dtype);
    expect(std::fabs(found.out.get((row * h.query + head) * h.dims + d) - y) <= bound + last,
           "output within the stated bound");
  }
  const double lse = top + std::log(sum);
  expect(std::fabs(found.lse.get(row * h.query + head) - lse) <=
             (score_error + 2 * (top - low) + 8 * tiles + 40 + 2 * std::fabs(lse)) * kUnit,
         "lse within the stated bound");
}

constexpr Heads kHeads[] = {{4, 4, 32}, {4, 2, 128}, {6, 2, 72},  {8, 1, 64},
                            {5, 1, 80}, {2, 1, 256}, {16, 1, 40}, {3, 3, 7}};
constexpr Mask kMasks[] = {{true, -1},     {false, -1},     {true, 0},
                           {true, 37},     {true, 200},     {false, 20},
                           {false, -1, 0}, {false, 20, 60}, {false, 150, 3}};

void test_contract() {
  Values values(1);
  int64_t control_differs = 0;
  for (int32_t dtype : kDtypes)
    for (const Heads &h : kHeads)
      for (const Mask &mask : kMasks) {
        const std::vector<Request> requests = {
            make(values, dtype, h, 3, 3), make(values, dtype, h, 1, 300),
            make(values, dtype, h, 70, 201), make(values, dtype, h, 5, 2)};
        const std::vector<Result> results = attend(requests, h, mask, {});
        for (size_t r = 0; r < requests.size(); ++r) {
          record(results[r].out);
          record(results[r].lse);
          for (int64_t row = 0;
               row<requests[r].q_len(); row += requests[r].q_len()> 8 ? 1 + values.below(20) : 1) {
            const int64_t head = values.below(h.query);
            std::vector<float> out, other;
            float lse, other_lse;
            scalar_row(requests[r], h, mask, row, head, 128, &out, &lse);
            scalar_row(requests[r], h, mask, row, head, 64, &other, &other_lse);
            int64_t different = bits(lse) != bits(results[r].lse.get(row * h.query + head));
            for (int64_t d = 0; d < h.dims; ++d) {
              const float found = results[r].out.get((row * h.query + head) * h.dims + d);
              different += bits(found) != bits(rounded(out[static_cast<size_t>(d)], dtype));
              control_differs += bits(found) != bits(rounded(other[static_cast<size_t>(d)], dtype));
            }
            expect(different == 0, "the row follows the contract, D " + std::to_string(h.dims));
            expect_in_bound(requests[r], h, mask, row, head, results[r]);
          }
        }
      }
  expect(control_differs > 0, "tiles of 64 positions differ somewhere");
}

// Pages, their size and order, strides, neighbours and threads change nothing.
void test_layouts_neighbours_threads() {
  Values values(2);
  for (int32_t dtype : kDtypes)
    for (const Heads &h : {Heads{4, 2, 128}, Heads{6, 2, 72}, Heads{2, 2, 33}}) {
      const Mask mask;
      std::vector<Request> requests;
      const int64_t lengths[][2] = {{1, 129}, {40, 40}, {1, 1}, {1, 517}, {90, 300}, {0, 9}};
      for (const auto &length : lengths)
        requests.push_back(make(values, dtype, h, length[0], length[1]));
      std::vector<Result> alone;
      for (const Request &r : requests) alone.push_back(attend_alone(r, h, mask));
      std::vector<Layout> layouts;
      for (int threads : kThreads) layouts.push_back({0, false, 0, 1, threads});
      for (int64_t block : {16, 32, 48, 128, 7, 1000})
        layouts.push_back({block, block % 32 == 0, block % 3, static_cast<uint32_t>(block), 2});
      for (const Layout &layout : layouts) {
        std::vector<Result> together = attend(requests, h, mask, layout);
        std::vector<Request> reversed(requests.rbegin(), requests.rend());
        std::vector<Result> backwards = attend(reversed, h, mask, layout);
        for (size_t r = 0; r < requests.size(); ++r) {
          expect_same_result(together[r], alone[r], "among other requests, paged or not");
          expect_same_result(backwards[requests.size() - 1 - r], alone[r], "in another order");
        }
      }
      for (const Result &r : alone) record(r.out);
    }
}

Request rows_of(const Request &whole, int64_t begin, int64_t end) {
  const int64_t width = whole.q.shape[1] * whole.q.shape[2];
  const int64_t kv_width = whole.k.shape[1] * whole.k.shape[2];
  const int64_t keys = whole.kv_len() - whole.q_len() + end;
  Request part{Tensor(whole.q.dtype, {end - begin, whole.q.shape[1], whole.q.shape[2]}),
               Tensor(whole.q.dtype, {keys, whole.k.shape[1], whole.k.shape[2]}),
               Tensor(whole.q.dtype, {keys, whole.k.shape[1], whole.k.shape[2]})};
  for (int64_t i = 0; i < part.q.count(); ++i) part.q.set(i, whole.q.get(begin * width + i));
  for (int64_t i = 0; i < keys * kv_width; ++i) {
    part.k.set(i, whole.k.get(i));
    part.v.set(i, whole.v.get(i));
  }
  return part;
}

// A prefill, its chunks, and decode steps give the same rows.
void test_chunks_and_decode() {
  Values values(3);
  for (int32_t dtype : kDtypes)
    for (const Heads &h : {Heads{4, 2, 64}, Heads{8, 1, 128}, Heads{3, 1, 40}})
      for (int64_t window : {-1, 50}) {
        const Mask mask{true, window};
        const Request whole = make(values, dtype, h, 150, 290);
        const Result expected = attend_alone(whole, h, mask);
        const int64_t width = h.query * h.dims;
        auto check = [&](int64_t begin, int64_t end) {
          const Result part =
              attend_alone(rows_of(whole, begin, end), h, mask, {16, true, 0, 5, 2});
          int64_t different = 0;
          for (int64_t i = 0; i < part.out.count(); ++i)
            different += bits(part.out.get(i)) != bits(expected.out.get(begin * width + i));
          for (int64_t i = 0; i < part.lse.count(); ++i)
            different += bits(part.lse.get(i)) != bits(expected.lse.get(begin * h.query + i));
          expect(different == 0, "rows " + std::to_string(begin) + " to " + std::to_string(end) +
                                     " of a prefill, computed apart");
        };
        check(0, 64);
        check(64, 131);
        check(131, 150);
        for (int64_t row = 0; row < 150; row += 1 + values.below(12)) check(row, row + 1);
      }
}

// What a row does not see may be NaN: later keys, keys before its window.
void test_unseen_positions() {
  Values values(4);
  for (int32_t dtype : kDtypes)
    for (const Heads &h : {Heads{4, 4, 64}, Heads{8, 1, 72}})
      for (int64_t at : {0, 5, 127, 128, 200, 239}) {
        for (int64_t window : {-1, 33}) {
          const Mask mask{true, window};
          const Request clean = make(values, dtype, h, 150, 240);
          Request dirty = clean;
          for (int64_t i = at * h.kv * h.dims; i < (at + 1) * h.kv * h.dims; ++i) {
            dirty.k.set(i, NAN);
            dirty.v.set(i, i % 2 == 0 ? NAN : HUGE_VALF);
          }
          const Result expected = attend_alone(clean, h, mask);
          const Result found = attend_alone(dirty, h, mask);
          for (int64_t row = 0; row < 150; ++row) {
            const auto [begin, end] = seen_keys(clean, mask, row);
            const bool seen = begin <= at && at < end;
            for (int64_t i = row * h.query * h.dims; i < (row + 1) * h.query * h.dims; ++i)
              expect(seen ? std::isnan(found.out.get(i))
                          : bits(found.out.get(i)) == bits(expected.out.get(i)),
                     seen ? "a NaN that a row sees shows" : "a NaN that a row does not see");
          }
        }
      }
}

void test_errors() {
  Heads h{2, 1, 8};
  Tensor q(BI_FLOAT32, {3, 2, 8}), k(BI_FLOAT32, {4, 16, 1, 8}), out(BI_FLOAT32, {3, 2, 8});
  int32_t table[] = {0, 3};
  int64_t q_end[] = {1, 3}, kv_len[] = {5, 9};
  bi_attention_args good = {};
  good.struct_size = sizeof(good);
  good.query = q.view();
  good.key = good.value = k.view();
  good.block_table = table;
  good.block_table_stride = 1;
  good.q_end = q_end;
  good.kv_len = kv_len;
  good.requests = 2;
  good.scale = scale_of(h);
  good.causal = 1;
  good.window_left = good.window_right = -1;
  good.out = out.view();
  expect_ok(bi_attention(&good, 2), "a good call");
  auto fails = [&](bi_status status, const char *argument, auto change) {
    bi_attention_args bad = good;
    change(bad);
    expect_error(bi_attention(&bad, 1), status, argument);
  };
  using Args = bi_attention_args;
  fails(BI_INVALID_ARGUMENT, "struct_size:", [](Args &a) { a.struct_size = 8; });
  fails(BI_UNSUPPORTED_DTYPE, "query:", [](Args &a) { a.query.dtype = BI_INT32; });
  fails(BI_UNSUPPORTED_DTYPE, "value:", [](Args &a) { a.value.dtype = BI_BFLOAT16; });
  fails(BI_INVALID_ARGUMENT, "key:", [](Args &a) { a.key.ndim = 3; });
  fails(BI_INVALID_ARGUMENT, "out:", [](Args &a) { a.out = a.key; });
  fails(BI_INVALID_ARGUMENT, "window_left:", [](Args &a) { a.window_left = -2; });
  fails(BI_INVALID_ARGUMENT, "window_right:", [](Args &a) { a.window_right = -2; });
  fails(BI_INVALID_ARGUMENT, "kv_end:", [&](Args &a) { a.kv_end = q_end; });
  fails(BI_INVALID_ARGUMENT, "requests:", [](Args &a) { a.requests = -1; });
  fails(BI_INVALID_ARGUMENT, "q_end:", [](Args &a) { a.requests = 1; });
  fails(BI_INVALID_ARGUMENT, "q_end and kv_len:", [](Args &a) { a.kv_len = nullptr; });
  const int64_t descending[] = {4, 3}, long_kv[] = {5, 17}, negative[] = {5, -1};
  fails(BI_INVALID_ARGUMENT, "q_end[1]:", [&](Args &a) { a.q_end = descending; });
  fails(BI_INVALID_ARGUMENT, "kv_len[1]:", [&](Args &a) { a.kv_len = long_kv; });
  fails(BI_INVALID_ARGUMENT, "kv_len[1]:", [&](Args &a) { a.kv_len = negative; });
  const int32_t outside[] = {0, 4};
  fails(BI_INVALID_ARGUMENT, "block_table:", [&](Args &a) { a.block_table = outside; });
  const int64_t uneven_stride[] = {16, 16, 8, 2};
  fails(BI_INVALID_ARGUMENT, "key:", [&](Args &a) { a.key.stride = uneven_stride; });
  fails(BI_INVALID_ARGUMENT, "lse:", [](Args &a) { a.lse = a.query; });
  bi_attention_args old = good;
  old.struct_size = offsetof(bi_attention_args, window_right);
  old.window_right = -2;
  expect_ok(bi_attention(&old, 1), "a structure that ends before window_right");
  expect_error(bi_attention(nullptr, 1), BI_INVALID_ARGUMENT, "args:");
  expect_error(bi_attention(&good, 0), BI_INVALID_ARGUMENT, "threads:");
}

void tests() {
  test_contract();
  test_layouts_neighbours_threads();
  test_chunks_and_decode();
  test_unseen_positions();
  test_errors();
}

}  // namespace

int main() { return finish(tests); }
