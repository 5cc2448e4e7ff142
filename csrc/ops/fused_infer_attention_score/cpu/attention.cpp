// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <vector>

#include "attention_kernel.h"
#include "tensor_check.h"

namespace bi {
namespace {

std::string at_request(const char *member, int64_t r) {
  return std::string(member) + "[" + std::to_string(r) + "]";
}

void check_unit_stride(const bi_tensor &t, const char *name) {
  const int last = t.ndim - 1;
  if (t.shape[last] > 1 && t.stride[last] != 1)
    fail(BI_INVALID_ARGUMENT, std::string(name) + ": expected a unit stride in D, found " +
                                  std::to_string(t.stride[last]));
}

void check_ndim(const bi_tensor &t, const char *name, int ndim, const char *layout) {
  if (t.ndim != ndim)
    fail(BI_INVALID_ARGUMENT,
         std::string(name) + ": expected " + layout + ", found shape " + shape_text(t));
}

void check_extent(const bi_tensor &t, const char *name, int d, const char *what, int64_t expected) {
  if (t.shape[d] != expected)
    fail(BI_INVALID_ARGUMENT, std::string(name) + ": expected " + std::to_string(expected) + " " +
                                  what + ", found shape " + shape_text(t));
}

void check_ends(const int64_t *ends, const char *name, int64_t requests, int64_t last) {
  int64_t before = 0;
  for (int64_t r = 0; r < requests; ++r) {
    if (ends[r] < before)
      fail(BI_INVALID_ARGUMENT, at_request(name, r) + ": expected ascending ends, found " +
                                    std::to_string(ends[r]) + " after " + std::to_string(before));
    before = ends[r];
  }
  if (before > last)
    fail(BI_INVALID_ARGUMENT, at_request(name, requests - 1) + ": expected at most " +
                                  std::to_string(last) + " rows, found " + std::to_string(before));
}

// The tensors of a call, checked against one another.
void check_tensors(const bi_attention_args &a) {
  const bool paged = a.block_table != nullptr;
  check_tensor(&a.query, "query");
  check_tensor(&a.key, "key");
  check_tensor(&a.value, "value");
  check_tensor(&a.out, "out");
  check_ndim(a.query, "query", 3, "[T, heads, D]");
  const char *const layout = paged ? "[blocks, block_size, kv_heads, D] (block_table is given)"
                                   : "[T_kv, kv_heads, D] (block_table is NULL)";
  check_ndim(a.key, "key", paged ? 4 : 3, layout);
  check_float(a.query, "query");
  check_dtype_in(a.key, "key", a.query.dtype, a.query.dtype);
  check_dtype_in(a.value, "value", a.query.dtype, a.query.dtype);
  check_dtype_in(a.out, "out", a.query.dtype, a.query.dtype);
  check_same_shape(a.value, "value", a.key, "key");
  check_same_shape(a.out, "out", a.query, "query");
  const int64_t heads = a.query.shape[1];
  const int64_t dims = a.query.shape[2];
  if (dims < 1) fail(BI_INVALID_ARGUMENT, "query: expected D of at least 1, found 0");
  check_extent(a.key, "key", a.key.ndim - 1, "elements in D", dims);
  const int64_t kv_heads = a.key.shape[a.key.ndim - 2];
  if (heads > 0 && (kv_heads < 1 || heads % kv_heads != 0))
    fail(BI_INVALID_ARGUMENT, "query: expected heads to be a multiple of key's " +
                                  std::to_string(kv_heads) + ", found " + std::to_string(heads));
  if (paged && a.key.shape[1] < 1)
    fail(BI_INVALID_ARGUMENT, "key: expected a block_size of at least 1, found 0");
  check_unit_stride(a.query, "query");
  check_unit_stride(a.key, "key");
  check_unit_stride(a.value, "value");
  check_unit_stride(a.out, "out");
  if (a.lse.data != nullptr) {
    check_tensor(&a.lse, "lse");
    check_dtype_in(a.lse, "lse", BI_FLOAT32, BI_FLOAT32);
    if (a.lse.ndim != 3 || a.lse.shape[0] != a.query.shape[0] || a.lse.shape[1] != heads ||
        a.lse.shape[2] != 1)
      fail(BI_INVALID_ARGUMENT, "lse: expected shape [" + std::to_string(a.query.shape[0]) + ", " +
                                    std::to_string(heads) + ", 1], found " + shape_text(a.lse));
  }
}

// The blocks that request r's rows will read exist.
void check_blocks(const bi_attention_args &a, const AttentionArgs &args, int64_t r, int64_t q_len,
                  int64_t kv_len) {
  const int64_t needed = kv_len / args.block_size + (kv_len % args.block_size != 0);
  if (needed > a.block_table_stride && a.requests > 1)
    fail(BI_INVALID_ARGUMENT, at_request("kv_len", r) + ": " + std::to_string(kv_len) +
                                  " keys need " + std::to_string(needed) +
                                  " blocks, block_table_stride is " +
                                  std::to_string(a.block_table_stride));
  const Visible first = visible_keys(args, q_len, kv_len, 0);
  for (int64_t b = first.begin / args.block_size; b < needed; ++b) {
    const int64_t block = a.block_table[r * a.block_table_stride + b];
    if (block < 0 || block >= a.key.shape[0])
      fail(BI_INVALID_ARGUMENT, "block_table: request " + std::to_string(r) + ", entry " +
                                    std::to_string(b) + ": expected a block below " +
                                    std::to_string(a.key.shape[0]) + ", found " +
                                    std::to_string(block));
  }
}

// The member came later than the structure.
constexpr size_t kOldStructSize = offsetof(bi_attention_args, window_right);

int64_t window_right(const bi_attention_args &a) {
  return a.struct_size == kOldStructSize ? -1 : a.window_right;
}

AttentionArgs kernel_args(const bi_attention_args &a) {
  AttentionArgs args = {};
  args.dtype = a.query.dtype;
  args.query = a.query.data;
  args.query_row = a.query.stride[0];
  args.query_head = a.query.stride[1];
  args.key = a.key.data;
  args.value = a.value.data;
  args.block_table = a.block_table;
  if (a.block_table != nullptr) {
    args.block_table_stride = a.block_table_stride;
    args.block_size = a.key.shape[1];
    args.key_block = a.key.stride[0];
    args.value_block = a.value.stride[0];
  }
  if (element_count(a.key) > 0) {  // else there is no address to step from
    args.key_position = a.key.stride[a.key.ndim - 3];
    args.key_head = a.key.stride[a.key.ndim - 2];
    args.value_position = a.value.stride[a.key.ndim - 3];
    args.value_head = a.value.stride[a.key.ndim - 2];
  }
  args.out = a.out.data;
  args.out_row = a.out.stride[0];
  args.out_head = a.out.stride[1];
  if (a.lse.data != nullptr) {
    args.lse = static_cast<float *>(a.lse.data);
    args.lse_row = a.lse.stride[0];
    args.lse_head = a.lse.stride[1];
  }
  args.head_dim = a.query.shape[2];
  args.group = a.query.shape[1] / a.key.shape[a.key.ndim - 2];
  args.scale = a.scale;
  args.window_left = a.window_left;
  args.window_right = a.causal != 0 ? 0 : window_right(a);
  return args;
}

// Work of a task: the key positions its last row can see, times its rows, plus packing them once.
int64_t cost(const AttentionArgs &args, const AttentionTask &task) {
  const Visible first = visible_keys(args, task.q_len, task.kv_len, task.row_begin / args.group);
  const Visible last =
      visible_keys(args, task.q_len, task.kv_len, (task.row_begin + task.rows - 1) / args.group);
  return std::max<int64_t>(0, last.end - first.begin) * (task.rows + 8);
}

void attention(const bi_attention_args *a, int threads) {
  if (a == nullptr) fail(BI_INVALID_ARGUMENT, "args: expected bi_attention_args, found NULL");
  if (a->struct_size != sizeof(bi_attention_args) && a->struct_size != kOldStructSize)
    fail(BI_INVALID_ARGUMENT, "struct_size: expected " + std::to_string(sizeof(bi_attention_args)) +
                                  ", found " + std::to_string(a->struct_size) +
                                  "; rebuild the caller with this library's batch_invariant.h");
  check_threads(threads);
  check_tensors(*a);
  if (a->requests < 0)
    fail(BI_INVALID_ARGUMENT, "requests: expected 0 or more, found " + std::to_string(a->requests));
  if (a->window_left < -1)
    fail(BI_INVALID_ARGUMENT,
         "window_left: expected -1 or more, found " + std::to_string(a->window_left));
  if (window_right(*a) < -1)
    fail(BI_INVALID_ARGUMENT,
         "window_right: expected -1 or more, found " + std::to_string(window_right(*a)));
  if (a->causal != 0 && a->causal != 1)
    fail(BI_INVALID_ARGUMENT, "causal: expected 0 or 1, found " + std::to_string(a->causal));
  const int64_t total = a->query.shape[0];
  if (a->requests > 0 && (a->q_end == nullptr || a->kv_len == nullptr))
    fail(BI_INVALID_ARGUMENT, "q_end and kv_len: expected one entry per request, found NULL");
  const int64_t covered = a->requests > 0 ? a->q_end[a->requests - 1] : 0;
  check_ends(a->q_end, "q_end", a->requests, total);
  if (covered != total)
    fail(BI_INVALID_ARGUMENT, "q_end: expected a last entry of " + std::to_string(total) +
                                  " (rows of query), found " + std::to_string(covered));
  const bool paged = a->block_table != nullptr;
  if (paged && a->kv_end != nullptr)
    fail(BI_INVALID_ARGUMENT, "kv_end: expected NULL beside a block_table");
  if (!paged && a->requests > 0) {
    if (a->kv_end == nullptr)
      fail(BI_INVALID_ARGUMENT, "kv_end: expected one entry per request, found NULL");
    check_ends(a->kv_end, "kv_end", a->requests, a->key.shape[0]);
  }
  if (total == 0 || a->query.shape[1] == 0) return;

  const AttentionArgs args = kernel_args(*a);
  const int64_t kv_heads = a->key.shape[a->key.ndim - 2];
  std::vector<AttentionTask> tasks;
  for (int64_t r = 0; r < a->requests; ++r) {
    AttentionTask task = {};
    task.request = r;
    task.q_begin = r > 0 ? a->q_end[r - 1] : 0;
    task.q_len = a->q_end[r] - task.q_begin;
    task.kv_len = a->kv_len[r];
    if (task.kv_len < 0)
      fail(BI_INVALID_ARGUMENT,
           at_request("kv_len", r) + ": expected 0 or more, found " + std::to_string(task.kv_len));
    if (task.q_len == 0) continue;
    if (paged) {
      check_blocks(*a, args, r, task.q_len, task.kv_len);
    } else {
      task.kv_begin = r > 0 ? a->kv_end[r - 1] : 0;
      if (task.kv_len > a->kv_end[r] - task.kv_begin)
        fail(BI_INVALID_ARGUMENT, at_request("kv_len", r) + ": expected at most the " +
                                      std::to_string(a->kv_end[r] - task.kv_begin) +
                                      " keys that kv_end gives, found " +
                                      std::to_string(task.kv_len));
    }
    const int64_t rows = task.q_len * args.group;
    for (task.kv_head = 0; task.kv_head < kv_heads; ++task.kv_head)
      for (task.row_begin = 0; task.row_begin < rows; task.row_begin += kTaskRows) {
        task.rows = std::min(kTaskRows, rows - task.row_begin);
        tasks.push_back(task);
      }
  }
  // The longest first, so that one long prefill doesn't come last and alone.
  std::vector<std::pair<int64_t, size_t>> order(tasks.size());
  for (size_t i = 0; i < tasks.size(); ++i) order[i] = {-cost(args, tasks[i]), i};
  std::sort(order.begin(), order.end());

  // Workers claim tasks one by one whatever the embedder's pool does; each has its workspace.
  const int64_t workers = std::min<int64_t>(threads, static_cast<int64_t>(tasks.size()));
  const int64_t floats = attention_workspace(args);
  std::vector<float> workspace(static_cast<size_t>(workers * floats));
  auto *const kernel = &BI_CALL(attention_rows);
  std::atomic<size_t> next{0};
  parallel_for(workers, threads, [&](int64_t worker) {
    for (size_t i = next++; i < order.size(); i = next++)
      kernel(args, tasks[order[i].second], workspace.data() + worker * floats);
  });
}

}  // namespace
}  // namespace bi

extern "C" bi_status bi_attention(const bi_attention_args *args, int threads) {
  return bi::guarded([&] { bi::attention(args, threads); });
}
