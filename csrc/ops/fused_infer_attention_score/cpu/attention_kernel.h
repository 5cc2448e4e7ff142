// SPDX-License-Identifier: Apache-2.0
#ifndef BI_OPS_ATTENTION_KERNEL_H
#define BI_OPS_ATTENTION_KERNEL_H

#include <cstdint>

#include "dispatch.h"

namespace bi {

// Positions per key/value tile. Part of the numeric contract: the running maximum and sums are
// rescaled once per tile.
constexpr int64_t kKvTile = 128;

// Rows (query row, head) of one key/value head that a task computes together. Not part of the
// contract: a row's operations are the same in any company.
constexpr int64_t kTaskRows = 64;

struct AttentionArgs {
  int32_t dtype;  // of query, key, value and out
  const void *query;
  int64_t query_row, query_head;  // strides, in elements; 1 along D
  const void *key, *value;
  // Strides of a block (paged) and of a position and a head, in elements; 1 along D.
  int64_t key_block, key_position, key_head;
  int64_t value_block, value_position, value_head;
  const int32_t *block_table;  // NULL: not paged
  int64_t block_table_stride, block_size;
  void *out;
  int64_t out_row, out_head;
  float *lse;  // or NULL
  int64_t lse_row, lse_head;
  int64_t head_dim;
  int64_t group;  // query heads per key/value head
  float scale;
  int64_t window_left, window_right;  // keys beside the row's own that it sees; -1: no limit
};

// Rows [row_begin, row_begin + rows) of (query row of the request) * group + (head of the group).
struct AttentionTask {
  int64_t request;
  int64_t kv_head;
  int64_t row_begin, rows;
  int64_t q_begin, q_len;  // the request's query rows
  int64_t kv_begin;        // not paged: its first key
  int64_t kv_len;
};

// The keys [begin, end) that query row i of a request sees; begin >= end: none.
struct Visible {
  int64_t begin, end;
};
static inline Visible visible_keys(const AttentionArgs &args, int64_t q_len, int64_t kv_len,
                                   int64_t i) {
  const int64_t own = kv_len - q_len + i;
  Visible v = {0, kv_len};
  if (args.window_left >= 0 && own > args.window_left) v.begin = own - args.window_left;
  if (args.window_right >= 0 && args.window_right < kv_len - own)
    v.end = own + args.window_right + 1;
  return v;
}

// Floats of workspace that attention_rows needs, for any task.
static inline int64_t attention_workspace(const AttentionArgs &args) {
  const int64_t padded = (args.head_dim + 31) / 32 * 32;
  // query, transposed keys, probabilities, values, output, and a row of zeros.
  return kTaskRows * padded + 32 * padded + kTaskRows * kKvTile + kKvTile * padded +
         kTaskRows * padded + padded;
}

BI_KERNEL(void, attention_rows,
          (const AttentionArgs &args, const AttentionTask &task, float *workspace))

}  // namespace bi

#endif
