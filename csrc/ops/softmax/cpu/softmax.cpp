// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "softmax_kernel.h"
#include "sum_order.h"
#include "tensor_check.h"

namespace bi {
namespace {

// Elements a task should read at least: a thread costs a few microseconds to wake.
constexpr int64_t kTaskElements = 1 << 14;

// Narrower than this, rows are gathered one by one rather than computed side by side.
constexpr int64_t kFewestColumns = 8;

// Rows of at least so many blocks are cut into blocks where there are few of them per thread.
constexpr int64_t kLongRowBlocks = 4;
constexpr int64_t kFewRowsPerThread = 4;

void run_rows(const SoftmaxArgs &args, int threads) {
  auto *const rows = &BI_CALL(softmax_rows);
  const int64_t count = nest_count(args.outer);
  const int64_t grain = std::max<int64_t>(1, kTaskElements / args.length);
  parallel_for((count + grain - 1) / grain, threads, [&](int64_t task) {
    rows(args, task * grain, std::min(count, (task + 1) * grain));
  });
}

void run_blocks(SoftmaxArgs args, int threads) {
  const int64_t rows = nest_count(args.outer);
  const int64_t units = rows * block_count(args.length);
  std::vector<float> workspace(static_cast<size_t>(2 * units + 2 * rows));
  args.block_max = workspace.data();
  args.block_sum = args.block_max + units;
  args.row_max = args.block_sum + units;
  args.row_sum = args.row_max + rows;
  auto each_unit = [&](auto *kernel) {
    const int64_t grain = kTaskElements / kSumBlock;
    parallel_for((units + grain - 1) / grain, threads, [&](int64_t task) {
      kernel(args, task * grain, std::min(units, (task + 1) * grain));
    });
  };
  each_unit(&BI_CALL(softmax_block_max));
  BI_CALL(softmax_fold_max)(args, 0, rows);
  each_unit(&BI_CALL(softmax_block_sum));
  BI_CALL(softmax_fold_sum)(args, 0, rows);
  each_unit(&BI_CALL(softmax_block_write));
}

void run_columns(const SoftmaxArgs &args, int threads) {
  auto *const columns = &BI_CALL(softmax_columns);
  const int64_t units =
      nest_count(args.outer) * ((args.columns + kSoftmaxColumns - 1) / kSoftmaxColumns);
  const int64_t grain = std::max<int64_t>(1, kTaskElements / (args.length * kSoftmaxColumns));
  parallel_for((units + grain - 1) / grain, threads, [&](int64_t task) {
    columns(args, task * grain, std::min(units, (task + 1) * grain));
  });
}

void run_gathered(const SoftmaxArgs &args, int threads) {
  auto *const rows = &BI_CALL(softmax_gathered_rows);
  const int64_t count = nest_count(args.outer);
  const int64_t tasks = std::min<int64_t>(threads, count);
  std::vector<float> scratch(static_cast<size_t>(tasks * args.length));
  parallel_for(tasks, threads, [&](int64_t task) {
    rows(args, count * task / tasks, count * (task + 1) / tasks,
         scratch.data() + task * args.length);
  });
}

}  // namespace

void softmax_entry(const bi_tensor *x, int32_t dim, const bi_tensor *out, int threads, bool log) {
  check_tensor(x, "x");
  check_float(*x, "x");
  check_tensor(out, "out");
  check_dtype_in(*out, "out", x->dtype, BI_FLOAT32);
  check_same_shape(*out, "out", *x, "x");
  const int32_t axis = check_axis(dim, *x, "dim");
  check_threads(threads);

  SoftmaxArgs args = {};
  args.x = x->data;
  args.out = out->data;
  args.x_dtype = x->dtype;
  args.out_dtype = out->dtype;
  args.log = log;
  args.length = x->ndim > 0 ? x->shape[axis] : 1;
  args.columns = 1;
  if (element_count(*x) == 0) return;
  if (args.length > 1) {
    args.x_stride = x->stride[axis];
    args.out_stride = out->stride[axis];
  } else {
    args.x_stride = args.out_stride = 1;
  }
  const bool contiguous = args.x_stride == 1 && args.out_stride == 1;
  int columns = -1;
  for (int d = 0; d < x->ndim && !contiguous; ++d)
    if (d != axis && x->stride[d] == 1 && out->stride[d] == 1 && x->shape[d] >= kFewestColumns)
      columns = d;
  for (int d = 0; d < x->ndim; ++d) {
    if (d == axis || d == columns) continue;
    const int64_t strides[2] = {x->stride[d], out->stride[d]};
    nest_append(args.outer, x->shape[d], strides);
  }
  if (columns >= 0) {
    args.columns = x->shape[columns];
    run_columns(args, threads);
  } else if (!contiguous) {
    run_gathered(args, threads);
  } else if (threads > 1 && block_count(args.length) >= kLongRowBlocks &&
             nest_count(args.outer) < kFewRowsPerThread * threads) {
    run_blocks(args, threads);
  } else {
    run_rows(args, threads);
  }
}

}  // namespace bi

extern "C" bi_status bi_softmax(const bi_tensor *x, int32_t dim, const bi_tensor *out,
                                int threads) {
  return bi::guarded([&] { bi::softmax_entry(x, dim, out, threads, false); });
}
