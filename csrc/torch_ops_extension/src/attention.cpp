// SPDX-License-Identifier: Apache-2.0
//
// npu_fused_infer_attention_score with its .out overload and its two companions. The kernels take
// their arguments boxed: torch_npu's schema has forty of them, and each that is not known here has
// to be refused by name unless it has its default value.
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "arguments.h"
#include "library.h"

namespace batch_invariant_ops {
namespace {

constexpr const char *kName = "npu_fused_infer_attention_score_batch_invariant";

// Arguments that may differ from their defaults. pre_tokens and next_tokens have a meaning in
// sparse_mode 4 alone; inner_precise trades precision for speed, which is not done, and asks for
// zeros in rows that see no key, which is always done.
constexpr std::array kKnown = {"query",
                               "key",
                               "value",
                               "atten_mask",
                               "actual_seq_lengths",
                               "actual_seq_lengths_kv",
                               "block_table",
                               "num_heads",
                               "scale",
                               "pre_tokens",
                               "next_tokens",
                               "input_layout",
                               "num_key_value_heads",
                               "sparse_mode",
                               "inner_precise",
                               "block_size",
                               "softmax_lse_flag",
                               "workspace",
                               "out"};

// Positions in the mask of sparse_mode 3 and 4, which torch_npu fixes whatever the lengths are.
constexpr int64_t kMaskExtent = 2048;

// The arguments of one call, by name.
class Call {
 public:
  Call(const c10::FunctionSchema &schema, at::ArrayRef<c10::IValue> values)
      : schema_(schema), values_(values) {}

  const c10::IValue &at(const char *name) const {
    const std::optional<int> index = schema_.argumentIndexWithName(name);
    TORCH_INTERNAL_ASSERT(index.has_value(), name);
    return values_[*index];
  }
  at::Tensor tensor(const char *name) const { return at(name).toTensor(); }
  int64_t integer(const char *name) const { return at(name).toInt(); }
  std::optional<at::Tensor> optional_tensor(const char *name) const {
    const c10::IValue &value = at(name);
    if (value.isNone()) return std::nullopt;
    return value.toTensor();
  }
  // A list of integers; empty where it is None.
  std::optional<std::vector<int64_t>> integers(const char *name) const {
    const c10::IValue &value = at(name);
    if (value.isNone()) return std::nullopt;
    std::vector<int64_t> list;
    for (const c10::SymInt &item : value.toSymIntVector()) {
      list.push_back(item.guard_int(__FILE__, __LINE__));
    }
    return list;
  }

  void refuse_unknown() const {
    for (size_t i = 0; i < values_.size(); ++i) {
      const c10::Argument &argument = schema_.arguments()[i];
      if (is_default(argument, values_[i])) continue;
      const bool known = std::any_of(kKnown.begin(), kKnown.end(),
                                     [&](const char *name) { return argument.name() == name; });
      TORCH_CHECK_NOT_IMPLEMENTED(known, kName, ": ", argument.name(),
                                  " is not supported: leave it at its default");
    }
  }

 private:
  static bool is_default(const c10::Argument &argument, const c10::IValue &value) {
    const std::optional<c10::IValue> &standard = argument.default_value();
    if (!standard) return false;
    if (standard->isNone() || value.isNone()) return standard->isNone() && value.isNone();
    if (standard->isInt()) return value.isInt() && value.toInt() == standard->toInt();
    return false;
  }

  const c10::FunctionSchema &schema_;
  at::ArrayRef<c10::IValue> values_;
};

// One side of the cache, or of keys and values that are not paged, as [outer, inner, heads, D].
struct Cache {
  c10::SymInt blocks;
  c10::SymInt block_size;
  c10::SymInt heads;
  c10::SymInt depth;
};

// How query, the result, and key and value that are not paged lie. T counts the rows of all
// requests, B the requests, S the rows of each, H = N * D.
enum class Layout { tnd, bsnd, bnsd, bsh };

Layout layout_of(const char *op, std::string_view name) {
  if (name == "TND") return Layout::tnd;
  if (name == "BSND") return Layout::bsnd;
  if (name == "BNSD") return Layout::bnsd;
  if (name == "BSH") return Layout::bsh;
  TORCH_CHECK_NOT_IMPLEMENTED(false, op, ": input_layout '", name,
                              "' is not supported: expected 'TND', 'BSND', 'BNSD' or 'BSH'");
}

const char *extents_of(Layout layout) {
  switch (layout) {
    case Layout::tnd:
      return "[T, N, D]";
    case Layout::bsnd:
      return "[B, S, N, D]";
    case Layout::bnsd:
      return "[B, N, S, D]";
    case Layout::bsh:
      break;
  }
  return "[B, S, N * D]";
}

int64_t key_value_heads(const char *op, int64_t heads, int64_t kv_heads) {
  TORCH_CHECK(heads > 0, op, ": expected num_heads > 0, but got ", heads);
  TORCH_CHECK(kv_heads >= 0, op, ": expected num_key_value_heads >= 0, but got ", kv_heads);
  if (kv_heads == 0) kv_heads = heads;
  TORCH_CHECK(heads % kv_heads == 0, op, ": expected num_heads to be a multiple of ",
              "num_key_value_heads, but got ", heads, " and ", kv_heads);
  return kv_heads;
}

// `tensor` has the extents of its layout, with so many heads; `heads_name` is the argument that
// says so. Returns D.
c10::SymInt check_heads(const char *op, Layout layout, const Argument &argument, int64_t heads,
                        const char *heads_name) {
  const at::Tensor &tensor = argument.tensor;
  const bool flat = layout == Layout::tnd || layout == Layout::bsh;
  TORCH_CHECK(tensor.dim() == (flat ? 3 : 4), op, ": expected ", argument.name, " of shape ",
              extents_of(layout), ", but got ", tensor.sym_sizes());
  if (layout == Layout::bsh) {
    TORCH_SYM_CHECK((tensor.sym_size(2) % heads).sym_eq(0), op, ": expected the last extent of ",
                    argument.name, " to be a multiple of ", heads_name, " = ", heads,
                    ", but its shape is ", tensor.sym_sizes());
    return tensor.sym_size(2) / heads;
  }
  const int64_t at = layout == Layout::bsnd ? 2 : 1;
  TORCH_SYM_CHECK(tensor.sym_size(at).sym_eq(heads), op, ": expected ", argument.name, " to have ",
                  heads_name, " = ", heads, " heads, but its shape is ", tensor.sym_sizes());
  return tensor.sym_size(-1);
}

// A tensor of a layout with requests, as [B, S, N, D], without a copy.
at::Tensor batched(Layout layout, const at::Tensor &tensor, int64_t heads) {
  if (layout == Layout::bnsd) return tensor.transpose(1, 2);
  if (layout == Layout::bsh) return tensor.unflatten(2, {heads, tensor.size(2) / heads});
  return tensor;
}

// Extents of a paged cache, [blocks, block_size, kv_heads * D] or [blocks, kv_heads, block_size,
// D].
Cache cache_of(const char *op, const char *name, const at::Tensor &cache, int64_t kv_heads) {
  TORCH_CHECK(cache.dim() == 3 || cache.dim() == 4, op, ": expected a paged ", name,
              " of shape [blocks, block_size, kv_heads * D] or [blocks, kv_heads, block_size, D], "
              "but got ",
              cache.sym_sizes());
  if (cache.dim() == 4) {
    TORCH_SYM_CHECK(cache.sym_size(1).sym_eq(kv_heads), op, ": expected ", name,
                    " to have num_key_value_heads = ", kv_heads, " heads, but its shape is ",
                    cache.sym_sizes());
    return {cache.sym_size(0), cache.sym_size(2), cache.sym_size(1), cache.sym_size(3)};
  }
  TORCH_SYM_CHECK((cache.sym_size(2) % kv_heads).sym_eq(0), op, ": expected the last extent of ",
                  name, " to be a multiple of num_key_value_heads = ", kv_heads,
                  ", but its shape is ", cache.sym_sizes());
  return {cache.sym_size(0), cache.sym_size(1), kv_heads, cache.sym_size(2) / kv_heads};
}

void check_same_shape(const char *op, const at::Tensor &key, const at::Tensor &value) {
  TORCH_CHECK(key.dim() == value.dim(), op, ": expected key and value of the same shape, but got ",
              key.sym_sizes(), " and ", value.sym_sizes());
  for (int64_t d = 0; d < key.dim(); ++d) {
    TORCH_SYM_CHECK(key.sym_size(d).sym_eq(value.sym_size(d)), op,
                    ": expected key and value of the same shape, but got ", key.sym_sizes(),
                    " and ", value.sym_sizes());
  }
}

// What does not depend on the tensors' contents: checked on the CPU and the Meta device alike.
struct Problem {
  at::Tensor query, key, value;
  std::optional<at::Tensor> block_table, mask;
  Layout layout;
  int64_t heads, kv_heads, sparse_mode;
  bool lse;
};

Problem check(const Call &call) {
  call.refuse_unknown();
  Problem p{call.tensor("query"),
            call.tensor("key"),
            call.tensor("value"),
            call.optional_tensor("block_table"),
            call.optional_tensor("atten_mask"),
            layout_of(kName, call.at("input_layout").toStringView()),
            call.integer("num_heads"),
            0,
            call.integer("sparse_mode"),
            call.at("softmax_lse_flag").toBool()};
  p.kv_heads = key_value_heads(kName, p.heads, call.integer("num_key_value_heads"));
  check_arguments(kName, {{"query", p.query}, {"key", p.key}, {"value", p.value}});
  const c10::SymInt query_depth =
      check_heads(kName, p.layout, {"query", p.query}, p.heads, "num_heads");
  check_same_shape(kName, p.key, p.value);
  TORCH_CHECK_NOT_IMPLEMENTED(
      p.sparse_mode == 0 || p.sparse_mode == 3 || p.sparse_mode == 4, kName, ": sparse_mode ",
      p.sparse_mode, " is not supported: expected 0 (no mask), 3 (causal, aligned at the last ",
      "key) or 4 (a band around that diagonal)");
  if (p.sparse_mode == 4) {
    for (const char *name : {"pre_tokens", "next_tokens"}) {
      TORCH_CHECK_NOT_IMPLEMENTED(call.integer(name) >= 0, kName, ": ", name, " of ",
                                  call.integer(name), " is not supported: expected 0 or more");
    }
  }
  const int64_t precision = call.integer("inner_precise");
  TORCH_CHECK(precision >= 0 && precision <= 3, kName, ": expected inner_precise in 0 .. 3, but ",
              "got ", precision);

  c10::SymInt depth;
  if (p.block_table) {
    const at::Tensor &table = *p.block_table;
    check_device(kName, {"query", p.query}, {"block_table", table});
    TORCH_CHECK(table.scalar_type() == at::kInt, kName,
                ": expected block_table of dtype Int, but got ", table.scalar_type());
    TORCH_CHECK(table.dim() == 2, kName, ": block_table must be [requests, blocks], but has ",
                table.dim(), " dimensions");
    const Cache cache = cache_of(kName, "key", p.key, p.kv_heads);
    depth = cache.depth;
    const int64_t block_size = call.integer("block_size");
    if (block_size != 0) {
      TORCH_SYM_CHECK(cache.block_size.sym_eq(block_size), kName, ": block_size is ", block_size,
                      ", but key has blocks of ", cache.block_size, " (shape ", p.key.sym_sizes(),
                      ")");
    }
  } else {
    depth = check_heads(kName, p.layout, {"key", p.key}, p.kv_heads, "num_key_value_heads");
    if (p.layout != Layout::tnd) {
      TORCH_SYM_CHECK(p.key.sym_size(0).sym_eq(p.query.sym_size(0)), kName,
                      ": expected query and key of as many requests, but their shapes are ",
                      p.query.sym_sizes(), " and ", p.key.sym_sizes());
    }
    TORCH_CHECK(call.integer("block_size") == 0, kName,
                ": block_size is given, but block_table is not");
  }
  TORCH_SYM_CHECK(query_depth.sym_eq(depth), kName,
                  ": expected query and key of the same head size, but got ", query_depth, " and ",
                  depth);

  if (p.mask) {
    const at::Tensor &mask = *p.mask;
    TORCH_CHECK_NOT_IMPLEMENTED(p.sparse_mode != 0, kName,
                                ": atten_mask is not supported with sparse_mode 0: expected None");
    check_device(kName, {"query", p.query}, {"atten_mask", mask});
    TORCH_CHECK(mask.scalar_type() == at::kBool || mask.scalar_type() == at::kChar ||
                    mask.scalar_type() == at::kByte,
                kName, ": expected atten_mask of dtype Bool, Char or Byte, but got ",
                mask.scalar_type());
    bool square = mask.dim() >= 2 && mask.dim() <= 4;
    for (int64_t d = 0; square && d < mask.dim(); ++d) {
      square = mask.sym_size(d) == (d < mask.dim() - 2 ? 1 : kMaskExtent);
    }
    TORCH_CHECK(square, kName, ": expected atten_mask of shape [2048, 2048] for sparse_mode ",
                p.sparse_mode, ", but got ", mask.sym_sizes());
  }
  return p;
}

// sparse_mode 3 and 4 mean this mask: a 1 hides a key, above the diagonal. Any other is refused,
// since it would be ignored.
void check_causal_mask(const at::Tensor &mask) {
  const at::Tensor dense = mask.contiguous();
  const auto *row = static_cast<const char *>(dense.const_data_ptr());
  bool causal = true;
  for (int64_t i = 0; causal && i < kMaskExtent; ++i, row += kMaskExtent) {
    causal = std::all_of(row, row + i + 1, [](char c) { return c == 0; }) &&
             std::all_of(row + i + 1, row + kMaskExtent, [](char c) { return c != 0; });
  }
  TORCH_CHECK_NOT_IMPLEMENTED(causal, kName,
                              ": expected atten_mask to be the upper triangle above ",
                              "the diagonal, as sparse_mode 3 and 4 mean it");
}

// Cumulative ends of the requests' rows, ascending; `total` rows in all.
void check_ends(const char *name, const std::vector<int64_t> &ends, const char *of, int64_t total) {
  int64_t before = 0;
  for (size_t r = 0; r < ends.size(); ++r) {
    TORCH_CHECK(ends[r] >= before, kName, ": expected cumulative ", name, ", ascending, but ", name,
                "[", r, "] is ", ends[r], " after ", before);
    before = ends[r];
  }
  TORCH_CHECK(before == total, kName, ": expected ", name, " to end at the ", total, " rows of ",
              of, ", but its last entry is ", before);
}

at::Tensor unit_stride(const at::Tensor &tensor) {
  return tensor.size(-1) == 1 || tensor.stride(-1) == 1 ? tensor : tensor.contiguous();
}

// A tensor seen with other extents and strides.
struct View {
  std::array<int64_t, 4> shape;
  std::array<int64_t, 4> stride;
  bi_tensor of(const at::Tensor &tensor) const {
    bi_tensor view = view_of(tensor);
    view.shape = shape.data();
    view.stride = stride.data();
    view.ndim = 4;
    return view;
  }
};

View paged_view(const char *name, const at::Tensor &cache, int64_t kv_heads) {
  TORCH_CHECK(cache.size(-1) <= 1 || cache.stride(-1) == 1, kName, ": expected ", name,
              " to be dense in its last dimension, but its strides are ", cache.strides());
  if (cache.dim() == 4) {
    return {{cache.size(0), cache.size(2), cache.size(1), cache.size(3)},
            {cache.stride(0), cache.stride(2), cache.stride(1), 1}};
  }
  const int64_t depth = cache.size(2) / kv_heads;
  return {{cache.size(0), cache.size(1), kv_heads, depth},
          {cache.stride(0), cache.stride(1), depth, 1}};
}

View view4_of(const at::Tensor &tensor) {
  return {{tensor.size(0), tensor.size(1), tensor.size(2), tensor.size(3)},
          {tensor.stride(0), tensor.stride(1), tensor.stride(2), tensor.stride(3)}};
}

// A query or a result of any layout as [rows, heads, D]; a copy where its strides ask for one.
at::Tensor rows_of(const Problem &p, const at::Tensor &tensor) {
  return p.layout == Layout::tnd ? tensor : batched(p.layout, tensor, p.heads).flatten(0, 1);
}

void check_block_table(const at::Tensor &table, const std::vector<int64_t> &kv_len,
                       int64_t block_size, int64_t blocks) {
  for (size_t r = 0; r < kv_len.size(); ++r) {
    const int64_t used = (kv_len[r] + block_size - 1) / std::max<int64_t>(block_size, 1);
    TORCH_CHECK(block_size > 0 && used <= table.size(1), kName, ": actual_seq_lengths_kv[", r,
                "] is ", kv_len[r], ", but a row of block_table holds ", table.size(1),
                " blocks of ", block_size);
    const int32_t *row =
        table.const_data_ptr<int32_t>() + static_cast<int64_t>(r) * table.stride(0);
    for (int64_t i = 0; i < used; ++i) {
      TORCH_CHECK_INDEX(row[i] >= 0 && row[i] < blocks, kName, ": block_table[", r, "][", i,
                        "] is ", row[i], ", but key has ", blocks, " blocks");
    }
  }
}

// The requests of a call: where each one's query rows end, and how many keys it has.
struct Requests {
  std::vector<int64_t> q_end;
  std::vector<int64_t> kv_len;
  std::vector<int64_t> kv_end;  // TND, not paged: where its keys end
  // Whether each request is followed by one without keys that owns its rows beyond its length.
  bool padded = false;
};

Requests requests_of_rows(const Call &call, const Problem &p) {
  const auto q_end = call.integers("actual_seq_lengths");
  const auto kv_lengths = call.integers("actual_seq_lengths_kv");
  TORCH_CHECK(q_end, kName, ": actual_seq_lengths is needed with input_layout 'TND'");
  TORCH_CHECK(kv_lengths, kName, ": actual_seq_lengths_kv is needed with input_layout 'TND'");
  TORCH_CHECK(q_end->size() == kv_lengths->size(), kName, ": expected actual_seq_lengths and ",
              "actual_seq_lengths_kv of the same length, but got ", q_end->size(), " and ",
              kv_lengths->size());
  check_ends("actual_seq_lengths", *q_end, "query", p.query.size(0));
  Requests requests{*q_end, *kv_lengths, {}};
  if (p.block_table) {
    for (size_t r = 0; r < requests.kv_len.size(); ++r) {
      TORCH_CHECK(requests.kv_len[r] >= 0, kName, ": expected actual_seq_lengths_kv >= 0, but ",
                  "entry ", r, " is ", requests.kv_len[r]);
    }
  } else {
    check_ends("actual_seq_lengths_kv", *kv_lengths, "key", p.key.size(0));
    requests.kv_end = *kv_lengths;
    for (size_t r = requests.kv_len.size(); r-- > 1;) requests.kv_len[r] -= requests.kv_len[r - 1];
  }
  return requests;
}

// One length for each of `count` requests: `all` where the argument is None, and a single entry
// serves all of them, as in torch_npu.
std::vector<int64_t> lengths_of(const Call &call, const char *name, int64_t count, int64_t all) {
  const auto given = call.integers(name);
  if (!given) return std::vector<int64_t>(static_cast<size_t>(count), all);
  const auto entries = static_cast<int64_t>(given->size());
  TORCH_CHECK(entries == 1 || entries == count, kName, ": expected ", name, " of 1 or ", count,
              " entries, one for each request, but got ", entries);
  for (int64_t r = 0; r < entries; ++r) {
    const int64_t length = (*given)[static_cast<size_t>(r)];
    TORCH_CHECK(length >= 0 && length <= all, kName, ": expected ", name, "[", r, "] in 0 .. ", all,
                ", but got ", length);
  }
  if (entries == count) return *given;
  return std::vector<int64_t>(static_cast<size_t>(count), given->front());
}

// A request of a layout with requests owns all rows of its batch entry; those beyond its length go
// to a request of their own that has no keys, which makes them zero.
Requests requests_of_batch(const Call &call, const Problem &p) {
  const int64_t count = p.query.size(0);
  const int64_t rows = p.query.size(p.layout == Layout::bnsd ? 2 : 1);
  int64_t keys = std::numeric_limits<int64_t>::max();
  if (p.block_table) {
    TORCH_CHECK(call.integers("actual_seq_lengths_kv"), kName,
                ": actual_seq_lengths_kv is needed with a block_table");
  } else {
    keys = p.key.size(p.layout == Layout::bnsd ? 2 : 1);
  }
  const std::vector<int64_t> q_len = lengths_of(call, "actual_seq_lengths", count, rows);
  const std::vector<int64_t> kv_len = lengths_of(call, "actual_seq_lengths_kv", count, keys);
  Requests requests;
  requests.padded =
      std::any_of(q_len.begin(), q_len.end(), [&](int64_t length) { return length < rows; });
  for (int64_t r = 0; r < count; ++r) {
    requests.q_end.push_back(r * rows + q_len[static_cast<size_t>(r)]);
    requests.kv_len.push_back(kv_len[static_cast<size_t>(r)]);
    if (requests.padded) {
      requests.q_end.push_back((r + 1) * rows);
      requests.kv_len.push_back(0);
    }
  }
  return requests;
}

// Computes into out and, where it is defined, lse, both of the shapes of p.layout.
void compute(const Call &call, const Problem &p, const at::Tensor &out, const at::Tensor &lse) {
  const bool tnd = p.layout == Layout::tnd;
  Requests requests = tnd ? requests_of_rows(call, p) : requests_of_batch(call, p);
  if (p.mask) check_causal_mask(*p.mask);

  // Keys that are not paged and lie by requests are a cache with one block for each request.
  at::Tensor key = p.key, value = p.value, table;
  View key_view{}, value_view{};
  if (p.block_table) {
    table = unit_stride(*p.block_table);
    const auto rows = static_cast<int64_t>(requests.kv_len.size()) / (requests.padded ? 2 : 1);
    TORCH_CHECK(table.size(0) >= rows, kName, ": expected a row of block_table for each of ", rows,
                " requests, but got ", table.size(0));
    if (requests.padded) table = table.slice(0, 0, rows).repeat_interleave(2, 0);
    key_view = paged_view("key", key, p.kv_heads);
    value_view = paged_view("value", value, p.kv_heads);
    check_block_table(table, requests.kv_len, key_view.shape[1], key_view.shape[0]);
  } else if (tnd) {
    key = unit_stride(key);
    value = unit_stride(value);
  } else {
    key = unit_stride(batched(p.layout, key, p.kv_heads));
    value = unit_stride(batched(p.layout, value, p.kv_heads));
    key_view = view4_of(key);
    value_view = view4_of(value);
    table = at::arange(key.size(0), p.query.options().dtype(at::kInt)).unsqueeze(1);
    if (requests.padded) table = table.repeat_interleave(2, 0);
  }
  if (out.numel() == 0) return;
  if (table.defined() && key_view.shape[1] == 0) {  // blocks without room: nobody sees a key
    out.zero_();
    if (lse.defined()) lse.fill_(-std::numeric_limits<double>::infinity());
    return;
  }

  const at::Tensor query = unit_stride(rows_of(p, p.query));
  const bool direct = p.layout != Layout::bnsd && out.is_contiguous();
  const at::Tensor out_rows = direct ? rows_of(p, out) : at::empty(query.sizes(), query.options());
  at::Tensor lse_rows;
  if (lse.defined()) {
    lse_rows =
        tnd && lse.is_contiguous() ? lse : at::empty({query.size(0), p.heads, 1}, lse.options());
  }

  bi_attention_args args{};
  args.struct_size = sizeof(args);
  args.query = view_of(query);
  if (table.defined()) {
    args.key = key_view.of(key);
    args.value = value_view.of(value);
    args.block_table = static_cast<const int32_t *>(input_data(table));
    args.block_table_stride = table.stride(0);
  } else {
    args.key = view_of(key);
    args.value = view_of(value);
    args.kv_end = requests.kv_end.data();
  }
  args.q_end = requests.q_end.data();
  args.kv_len = requests.kv_len.data();
  args.requests = static_cast<int64_t>(requests.q_end.size());
  args.scale = static_cast<float>(call.at("scale").toDouble());
  args.causal = p.sparse_mode == 3;
  args.window_left = p.sparse_mode == 4 ? call.integer("pre_tokens") : -1;
  args.window_right = p.sparse_mode == 4 ? call.integer("next_tokens") : -1;
  args.out = output_view(out_rows);
  if (lse_rows.defined()) args.lse = output_view(lse_rows);
  const Library &lib = library(kName);
  check_status(lib, kName, lib.bi_attention(&args, at::get_num_threads()));

  auto into = [&](const at::Tensor &target, const at::Tensor &rows) {
    if (tnd) {
      target.copy_(rows);
    } else {
      target.copy_(rows.unflatten(0, {target.size(0), -1}).transpose(1, 2));
    }
  };
  if (!direct) {
    if (p.layout == Layout::bnsd || tnd) {
      into(out, out_rows);
    } else {
      out.copy_(out_rows.view(out.sizes()));
    }
  }
  if (lse.defined() && !lse_rows.is_same(lse)) into(lse, lse_rows);
}

c10::SymDimVector lse_shape(Layout layout, const at::Tensor &query, int64_t heads) {
  if (layout == Layout::tnd) return {query.sym_size(0), heads, 1};
  return {query.sym_size(0), heads, query.sym_size(layout == Layout::bnsd ? 2 : 1), 1};
}

at::Tensor empty_lse(Layout layout, const at::Tensor &query, int64_t heads, bool wanted) {
  const at::TensorOptions options = query.options().dtype(at::kFloat);
  if (!wanted) return at::empty({0}, options);
  return at::empty_symint(lse_shape(layout, query, heads), options);
}

void check_out(const char *name, const at::Tensor &out, const at::Tensor &query,
               c10::SymIntArrayRef shape, at::ScalarType type) {
  check_device(kName, {"query", query}, {name, out});
  TORCH_CHECK(out.scalar_type() == type, kName, ": expected ", name, " of dtype ", type,
              ", but got ", out.scalar_type());
  TORCH_CHECK(out.dim() == static_cast<int64_t>(shape.size()), kName, ": expected ", name,
              " of shape ", shape, ", but got ", out.sym_sizes());
  for (size_t d = 0; d < shape.size(); ++d) {
    TORCH_SYM_CHECK(out.sym_size(static_cast<int64_t>(d)).sym_eq(shape[d]), kName, ": expected ",
                    name, " of shape ", shape, ", but got ", out.sym_sizes());
  }
}

void check_apart(const at::Tensor &out, std::initializer_list<Argument> inputs) {
  for (const Argument &input : inputs) {
    const at::MemOverlapStatus status = at::get_overlap_status(out, input.tensor);
    TORCH_CHECK(status != at::MemOverlapStatus::Full && status != at::MemOverlapStatus::Partial,
                kName, ": expected out[0] not to overlap ", input.name, ", but they share memory");
  }
}

// Takes the arguments from the stack, and leaves them to the caller.
std::vector<c10::IValue> take(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const size_t count = op.schema().arguments().size();
  std::vector<c10::IValue> values(std::make_move_iterator(stack->end() - static_cast<long>(count)),
                                  std::make_move_iterator(stack->end()));
  torch::jit::drop(*stack, count);
  return values;
}

void attention(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const std::vector<c10::IValue> values = take(op, stack);
  const Call call(op.schema(), values);
  const Problem p = check(call);
  const at::Tensor out = at::empty_symint(p.query.sym_sizes(), p.query.options());
  const at::Tensor lse = empty_lse(p.layout, p.query, p.heads, p.lse);
  if (!out.is_meta()) compute(call, p, out, p.lse ? lse : at::Tensor());
  torch::jit::push(*stack, out, lse);
}

// The tensors of the argument `out`, of which the second counts only where p.lse.
std::pair<at::Tensor, at::Tensor> outs_of(const Call &call, const Problem &p) {
  const std::vector<at::Tensor> outs = call.at("out").toTensorVector();
  TORCH_CHECK(outs.size() == 2, kName,
              ": expected out to hold two tensors, attention and lse, but ", "got ", outs.size());
  check_out("out[0]", outs[0], p.query, p.query.sym_sizes(), p.query.scalar_type());
  if (p.lse) {
    check_out("out[1]", outs[1], p.query, lse_shape(p.layout, p.query, p.heads), at::kFloat);
  }
  return {outs[0], outs[1]};
}

void attention_out(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const std::vector<c10::IValue> values = take(op, stack);
  const Call call(op.schema(), values);
  const Problem p = check(call);
  const auto [out, lse] = outs_of(call, p);
  if (!out.is_meta()) {
    check_apart(out, {{"query", p.query}, {"key", p.key}, {"value", p.value}});
    compute(call, p, out, p.lse ? lse : at::Tensor());
  }
  torch::jit::push(*stack, out, lse);
}

// What a compiler sees of .out. torch_npu's schema does not say that out is written and returned,
// so to a compiler the operator is one without effect whose results are fresh: it may drop or move
// the call, and complains of the results (an error where the environment has CI). Written as the
// operator without out and two copies, nothing is left unsaid.
void attention_out_functionalized(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const std::vector<c10::IValue> values = take(op, stack);
  const Call call(op.schema(), values);
  const Problem p = check(call);
  const auto [out, lse] = outs_of(call, p);
  const c10::OperatorHandle plain = c10::Dispatcher::singleton().findSchemaOrThrow(
      ("batch_invariant_ops::" + std::string(kName)).c_str(), "");
  const size_t count = plain.schema().arguments().size();  // .out has its own after them
  torch::jit::Stack inner(values.begin(), values.begin() + static_cast<long>(count));
  plain.callBoxed(&inner);
  out.copy_(inner[0].toTensor());
  if (p.lse) lse.copy_(inner[1].toTensor());
  torch::jit::push(*stack, out, lse);
}

// Graph mode asks for this before it captures. Nothing is needed beside the outputs here.
void attention_workspace(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const std::vector<c10::IValue> values = take(op, stack);
  const Problem p = check(Call(op.schema(), values));
  torch::jit::push(*stack, at::empty({0}, p.query.options().dtype(at::kByte)));
}

std::tuple<at::Tensor, at::Tensor> infer_output(const at::Tensor &query, const at::Tensor &value,
                                                std::string_view input_layout,
                                                const std::optional<at::Tensor> &quant_scale2,
                                                const std::optional<at::Tensor> &,
                                                int64_t num_heads, int64_t num_key_value_heads,
                                                bool softmax_lse_flag,
                                                const std::optional<at::Tensor> &query_rope) {
  constexpr const char *op = "_npu_fused_infer_attention_score_batch_invariant_infer_output";
  TORCH_CHECK_NOT_IMPLEMENTED(!quant_scale2, op, ": quant_scale2 is not supported: expected None");
  TORCH_CHECK_NOT_IMPLEMENTED(!query_rope, op, ": query_rope is not supported: expected None");
  const Layout layout = layout_of(op, input_layout);
  key_value_heads(op, num_heads, num_key_value_heads);
  check_arguments(op, {{"query", query}, {"value", value}});
  check_heads(op, layout, {"query", query}, num_heads, "num_heads");
  return {at::empty_symint(query.sym_sizes(), query.options()),
          empty_lse(layout, query, num_heads, softmax_lse_flag)};
}

void register_kernels(torch::Library &m) {
  using torch::CppFunction;
  m.impl("npu_fused_infer_attention_score_batch_invariant",
         CppFunction::makeFromBoxedFunction<&attention>());
  m.impl("npu_fused_infer_attention_score_batch_invariant.out",
         CppFunction::makeFromBoxedFunction<&attention_out>());
  m.impl("_npu_fused_infer_attention_score_batch_invariant_get_max_workspace",
         CppFunction::makeFromBoxedFunction<&attention_workspace>());
  m.impl("_npu_fused_infer_attention_score_batch_invariant_infer_output", &infer_output);
}

}  // namespace

TORCH_LIBRARY_IMPL(batch_invariant_ops, CPU, m) { register_kernels(m); }
TORCH_LIBRARY_IMPL(batch_invariant_ops, Meta, m) { register_kernels(m); }
TORCH_LIBRARY_IMPL(batch_invariant_ops, Functionalize, m) {
  m.impl("npu_fused_infer_attention_score_batch_invariant.out",
         torch::CppFunction::makeFromBoxedFunction<&attention_out_functionalized>());
}

}  // namespace batch_invariant_ops
