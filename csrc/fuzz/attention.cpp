// SPDX-License-Identifier: Apache-2.0
//
// bi_attention (csrc/ops/fused_infer_attention_score/README.md).
#include <algorithm>
#include <cstddef>
#include <utility>

#include "arguments.h"
#include "operators.h"
#include "shapes.h"

namespace bi_fuzz {
namespace {

constexpr int64_t kTile = 128;

// One query row of one head against the keys it sees.
struct Row {
  std::vector<double> query;
  std::vector<std::vector<double>> keys, values;  // by position, from `begin` on
  int64_t begin, end;
  double scale;
  std::vector<Real> scores;  // of those keys
};

struct Attended {
  std::vector<Expected> out;
  Expected lse;
};

Real score_of(const Row &row, const std::vector<double> &key) {
  Real chain;
  for (size_t d = 0; d < row.query.size(); ++d)
    chain = multiply_add(Real::exactly(row.query[d]), Real::exactly(key[d]), chain);
  return multiply(chain, Real::exactly(row.scale));
}

// Whether `score` may be the largest one, which `top` is computed to be.
bool may_be(const Real &score, const Real &top) {
  return score.open || score.value + score.error >= top.value - top.error;
}

// The sequence of the README, tile by tile: what is inf, NaN or finite.
void place(const Row &row, Attended *result) {
  const size_t dims = row.query.size();
  Real max = Real::exactly(-HUGE_VAL), sum;
  std::vector<Real> out(dims);
  for (int64_t tile = row.begin / kTile * kTile; tile < row.end; tile += kTile) {
    const int64_t from = std::max(tile, row.begin), to = std::min(tile + kTile, row.end);
    std::vector<Real> p;
    Real top = max;
    for (int64_t i = from; i < to; ++i) {
      p.push_back(row.scores[static_cast<size_t>(i - row.begin)]);
      top = larger(top, p.back());
    }
    const Real reference = !top.open && top.value == -HUGE_VAL ? Real::exactly(0.0) : top;
    // The largest score less itself is 0, however large its error is.
    int64_t rivals = may_be(max, top);
    for (const Real &score : p) rivals += may_be(score, top);
    auto weight = [&](const Real &score) {
      const bool itself = rivals == 1 && top.finite() && may_be(score, top);
      return itself ? Real::exactly(1.0) : exponential(subtract(score, reference));
    };
    Real lane[16];
    for (int64_t i = from; i < to; ++i) {
      Real &term = p[static_cast<size_t>(i - from)];
      term = weight(term);
      lane[i % 16] = add(lane[i % 16], term);
    }
    for (int half = 8; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) lane[l] = add(lane[l], lane[l + half]);
    const Real alpha = weight(max);
    sum = multiply_add(sum, alpha, lane[0]);
    max = top;
    for (size_t d = 0; d < dims; ++d) {
      Real chain;
      for (int64_t i = from; i < to; ++i)
        chain =
            multiply_add(p[static_cast<size_t>(i - from)],
                         Real::exactly(row.values[static_cast<size_t>(i - row.begin)][d]), chain);
      out[d] = multiply_add(out[d], alpha, chain);
    }
  }
  const bool any = row.begin < row.end;
  for (size_t d = 0; d < dims; ++d) {
    result->out[d].placed = any ? divide(out[d], sum) : Real::exactly(0.0);
  }
  result->lse.placed = any ? add(max, logarithm(sum)) : Real::exactly(-HUGE_VAL);
}

// The README's formula, in float64.
void measure(const Row &row, Attended *result) {
  const size_t dims = row.query.size();
  std::vector<double> scores;
  double top = -HUGE_VAL, low = HUGE_VAL, terms = 0.0, sum = 0.0;
  for (size_t i = 0; i < row.keys.size(); ++i) {
    double dot = 0.0, size = 0.0;
    for (size_t d = 0; d < dims; ++d) {
      dot += row.query[d] * row.keys[i][d];
      size += std::fabs(row.query[d] * row.keys[i][d]);
    }
    // A chain that went to -inf on its way stays there: the key has no weight.
    const bool lost = row.scores[i].value == -HUGE_VAL;
    scores.push_back(lost ? -HUGE_VAL : dot * row.scale);
    if (lost) continue;
    terms = std::max(terms, size * std::fabs(row.scale));
    top = std::max(top, scores.back());
    low = std::min(low, scores.back());
  }
  for (const double score : scores) sum += std::exp(score - top);
  const double unit = kFloat32.unit();
  const auto depth = static_cast<double>(dims + 1);
  // Of scores: the second term is for products too small for fp32.
  const double score_error =
      depth * (terms * unit + kFloat32.tiny() * (1.0 + std::fabs(row.scale)));
  const auto tiles = static_cast<double>((row.end - row.begin) / kTile + 2);
  const double relative = 2 * score_error + (4 * (top - low) + 8 * tiles + 160) * unit;
  for (size_t d = 0; d < dims; ++d) {
    double exact = 0.0, largest = 0.0;
    for (size_t i = 0; i < scores.size(); ++i) {
      exact += std::exp(scores[i] - top) / sum * row.values[i][d];
      largest = std::max(largest, std::fabs(row.values[i][d]));
    }
    result->out[d].exact = exact;
    // To first order: where scores are huge, exp(error) is no longer 1 + error.
    const double error = relative < 0.01 ? relative : std::expm1(std::min(2 * relative, 700.0));
    const auto count = static_cast<double>(scores.size());
    // Probabilities below fp32's smallest number, and products of them.
    result->out[d].error = error * largest + count * kFloat32.tiny() * (1.0 + 2.0 * largest);
  }
  result->lse.exact = top + std::log(sum);
  result->lse.error =
      score_error + (2 * (top - low) + 8 * tiles + 40 + 2 * std::fabs(result->lse.exact)) * unit;
}

Attended attend(Row row) {
  Attended result;
  for (const std::vector<double> &key : row.keys) row.scores.push_back(score_of(row, key));
  result.out.resize(row.query.size(), {{}, 0.0, 0.0});
  result.lse = {{}, 0.0, 0.0};
  place(row, &result);
  if (row.begin < row.end) measure(row, &result);
  return result;
}

struct Requests {
  std::vector<int64_t> q_end, kv_end, kv_len;
  int64_t rows = 0, keys = 0;
};

Requests random_requests(Random &random) {
  Requests requests;
  const int64_t count = random.percent(4) ? 0 : random.between(1, 4);
  for (int64_t r = 0; r < count; ++r) {
    const int64_t q_len = random.percent(10)   ? 0
                          : random.percent(50) ? 1
                                               : random.between(1, random.percent(20) ? 40 : 9);
    const int64_t kv_len = random.percent(8)    ? 0
                           : random.percent(15) ? random.between(100, 400)
                                                : random.between(1, 40);
    requests.q_end.push_back(requests.rows += q_len);
    // Some keys behind the last one that the request has.
    requests.kv_end.push_back(requests.keys += kv_len + (random.percent(30) ? random.below(5) : 0));
    requests.kv_len.push_back(kv_len);
  }
  return requests;
}

// The list behind `ends` or lengths, with one entry that cannot be.
Spoilt spoil_entry(Random &random, std::vector<int64_t> *list, const char *name,
                   std::initializer_list<int64_t> wrong) {
  (*list)[static_cast<size_t>(random.below(static_cast<int64_t>(list->size())))] =
      random.one_of(wrong);
  return {std::string("an entry of ") + name, {name}};
}

Spoilt spoil_args(Random &random, Requests *requests, std::vector<int32_t> *table,
                  bi_attention_args *args) {
  const bool any = args->requests > 0;
  switch (random.below(10)) {
    case 0:
      args->struct_size = random.one_of<size_t>({0, 8, sizeof(*args) - 1, SIZE_MAX});
      return {"another struct_size", {"struct_size"}};
    case 1:
      args->requests = random.one_of<int64_t>({-1, INT64_MIN});
      return {"negative requests", {"requests"}};
    case 2:
      if (random.percent(50) && args->struct_size == sizeof(*args)) {
        args->window_right = random.one_of<int64_t>({-2, INT64_MIN});
        return {"window_right below -1", {"window_right"}};
      }
      args->window_left = random.one_of<int64_t>({-2, INT64_MIN});
      return {"window_left below -1", {"window_left"}};
    case 3:
      args->causal = random.one_of<int32_t>({-1, 2, INT32_MAX});
      return {"causal that is no truth value", {"causal"}};
    case 4:
      if (!any) break;
      args->q_end = nullptr;
      return {"q_end of NULL", {"q_end"}};
    case 5:
      if (!any) break;
      args->kv_len = nullptr;
      return {"kv_len of NULL", {"q_end and kv_len"}};
    case 6:
      if (!any) break;
      return spoil_entry(random, &requests->q_end, "q_end",
                         {-1, requests->rows + 1, INT64_MAX, INT64_MIN});
    case 7: {
      // A request without query rows has no use for its keys.
      if (!any || requests->q_end[0] == 0 || args->query.shape[1] == 0) break;
      // Of one request alone the table's length is not known.
      const bool absurd = table->empty() || args->requests > 1;
      requests->kv_len[0] = random.one_of<int64_t>({-1, INT64_MIN, absurd ? INT64_MAX : -2});
      return {"a negative or absurd kv_len", {"kv_len"}};
    }
    case 8:
      if (!any) break;
      if (table->empty()) {
        if (random.percent(50))
          return spoil_entry(random, &requests->kv_end, "kv_end",
                             {-1, requests->keys + 1, INT64_MAX, INT64_MIN});
        args->kv_end = nullptr;
        return {"kv_end of NULL", {"kv_end"}};
      }
      args->kv_end = requests->kv_end.data();
      return {"kv_end beside a block_table", {"kv_end"}};
    default:
      // A position that every row sees lies in a block that does not exist.
      if (table->empty() || !any || requests->q_end[0] == 0 || requests->kv_len[0] == 0 ||
          args->query.shape[1] == 0)
        break;
      (*table)[static_cast<size_t>((requests->kv_len[0] - 1) / args->key.shape[1])] =
          random.one_of<int32_t>({-1, static_cast<int32_t>(args->key.shape[0]), INT32_MAX});
      return {"a block that does not exist", {"block_table"}};
  }
  return {};
}

}  // namespace

void fuzz_attention(Random &random, Report &report) {
  const int32_t dtype = random_dtype(random);
  Requests requests = random_requests(random);
  const int64_t kv_heads = random.between(1, 3);
  const int64_t heads = random.percent(2) ? 0 : kv_heads * random.between(1, 3);
  const int64_t dims = random.percent(80) ? random.between(1, 24) : random.between(25, 140);
  const bool paged = random.percent(50);
  const int64_t block_size = random.percent(20) ? 128 : random.between(1, 33);

  // Blocks in any order, some unused, some (a shared prefix) used by two requests.
  std::vector<int32_t> table;
  int64_t blocks = 0, most = 1;
  for (const int64_t length : requests.kv_len) {
    blocks += (length + block_size - 1) / block_size;
    most = std::max(most, (length + block_size - 1) / block_size);
  }
  blocks += random.below(3);
  if (paged) {
    if (blocks == 0) blocks = 1;
    table.resize(std::max<size_t>(1, requests.kv_len.size()) * static_cast<size_t>(most));
    for (int32_t &block : table) block = static_cast<int32_t>(random.below(blocks));
  }
  const Shape q_shape = {requests.rows, heads, dims};
  const Shape kv_shape =
      paged ? Shape{blocks, block_size, kv_heads, dims} : Shape{requests.keys, kv_heads, dims};
  const int unit = static_cast<int>(kv_shape.size()) - 1;
  const Tensor query = random_input(random, dtype, q_shape, 2);
  const Tensor key = random_input(random, dtype, kv_shape, unit);
  const Tensor value = random_input(random, dtype, kv_shape, unit);
  Tensor out = random_output(random, dtype, q_shape, 2);
  Tensor lse = random_output(random, BI_FLOAT32, {requests.rows, heads, 1});
  const bool has_lse = random.percent(60);

  bi_attention_args args = {};
  args.struct_size = sizeof(args);
  args.block_table_stride = most;
  args.requests = static_cast<int64_t>(requests.q_end.size());
  args.scale = static_cast<float>(random.one_of({0.125, 1.0, 0.3, -0.5, 0.0, 1e-20, 1e20}));
  args.causal = random.percent(60) ? 1 : 0;
  args.window_left =
      random.percent(50) ? -1 : random.one_of<int64_t>({0, 1, 7, 130, INT64_MAX, INT64_MAX - 500});
  args.window_right =
      random.percent(60) ? -1 : random.one_of<int64_t>({0, 1, 9, INT64_MAX, INT64_MAX - 500});
  // A caller that was compiled before the member was there.
  if (random.percent(10)) {
    args.struct_size = offsetof(bi_attention_args, window_right);
    args.window_right = random.one_of<int64_t>({0, INT64_MIN});
  }
  report.describe("query", query);
  report.describe("key", key);
  report.describe("value", value);
  report.describe("out", out);
  report.describe("q_end=" + text_of(requests.q_end) + " kv_len=" + text_of(requests.kv_len) +
                  (paged ? " paged" : " kv_end=" + text_of(requests.kv_end)) + " scale=" +
                  std::to_string(args.scale) + " causal=" + std::to_string(args.causal) +
                  " window=" + std::to_string(args.window_left) + "," +
                  (args.struct_size < sizeof(args) ? "?" : std::to_string(args.window_right)));

  std::vector<Argument> arguments;
  arguments.reserve(5);
  arguments.emplace_back("query", query);
  arguments.emplace_back("key", key);
  arguments.emplace_back("value", value);
  arguments.emplace_back("out", out);
  const bool lse_has_data = has_lse && lse.count() > 0;
  if (lse_has_data) arguments.emplace_back("lse", lse);
  for (Argument &argument : arguments) argument.required = false;  // they are members, not pointers
  arguments[1].tied = false;                                       // keys may be unused
  int threads = random_threads(random);
  Spoilt spoilt;
  const bool wrong = random.percent(20), wrong_tensor = random.percent(50);
  if (wrong && wrong_tensor) {
    spoilt = spoil(random, arguments, &threads);
    // Rows and keys of another number are those that the lists do not have.
    if (spoilt.done())
      for (const char *name : {"q_end", "kv_end", "kv_len", "block_table"})
        spoilt.names.push_back(name);
    // An lse without data is an lse not wanted.
    if (lse_has_data && spoilt.done() && arguments[4].view.data == nullptr) spoilt = {};
  }
  args.query = arguments[0].view;
  args.key = arguments[1].view;
  args.value = arguments[2].view;
  args.out = arguments[3].view;
  if (lse_has_data) args.lse = arguments[4].view;
  args.block_table = paged ? table.data() : nullptr;
  args.q_end = requests.q_end.data();
  args.kv_end = paged ? nullptr : requests.kv_end.data();
  args.kv_len = requests.kv_len.data();
  if (args.requests == 0) args.q_end = args.kv_end = args.kv_len = nullptr;
  if (wrong && !wrong_tensor) spoilt = spoil_args(random, &requests, &table, &args);
  const bi_status status = bi_attention(&args, threads);
  for (const Tensor *input : {&query, &key, &value}) report.untouched("an input", *input, true);
  std::vector<Output> outputs = {{"out", &out}};
  if (has_lse) outputs.push_back({"lse", &lse});
  const bool kept = has_lse && args.lse.data == nullptr;  // the one that was not wanted
  if (!report.returned(status, spoilt, outputs) || kept) return;

  const std::vector<double> q = query.values(), k = key.values(), v = value.values();
  const auto width = static_cast<size_t>(dims);
  for (int64_t r = 0; r < args.requests; ++r) {
    const auto index = static_cast<size_t>(r);
    const int64_t q_begin = r > 0 ? requests.q_end[index - 1] : 0;
    const int64_t kv_begin = r > 0 ? requests.kv_end[index - 1] : 0;
    const int64_t q_len = requests.q_end[index] - q_begin, kv_len = requests.kv_len[index];
    for (int64_t i = 0; i < q_len * heads; ++i) {
      const int64_t head = i % heads, own = kv_len - q_len + i / heads;
      Row row = {{}, {}, {}, 0, args.causal ? own + 1 : kv_len, args.scale, {}};
      if (args.window_left >= 0 && args.window_left < own) row.begin = own - args.window_left;
      const int64_t right = args.struct_size < sizeof(args) ? -1 : args.window_right;
      if (right >= 0 && right < row.end - 1 - own) row.end = own + 1 + right;
      const int64_t element = (q_begin * heads + i) * dims;
      row.query.assign(q.begin() + element, q.begin() + element + dims);
      for (int64_t p = row.begin; p < row.end; ++p) {
        int64_t slot = kv_begin + p;
        if (paged)
          slot = table[index * static_cast<size_t>(most) + static_cast<size_t>(p / block_size)] *
                     block_size +
                 p % block_size;
        const int64_t at = (slot * kv_heads + head / (heads / kv_heads)) * dims;
        row.keys.emplace_back(k.begin() + at, k.begin() + at + dims);
        row.values.emplace_back(v.begin() + at, v.begin() + at + dims);
      }
      const Attended expected = attend(std::move(row));
      for (size_t d = 0; d < width; ++d)
        report.element("out", out, element + static_cast<int64_t>(d), expected.out[d]);
      if (has_lse) report.element("lse", lse, q_begin * heads + i, expected.lse);
    }
  }
}

}  // namespace bi_fuzz
