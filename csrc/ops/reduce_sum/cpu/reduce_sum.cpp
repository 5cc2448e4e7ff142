// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "reduce_sum_kernel.h"
#include "sum_order.h"
#include "tensor_check.h"

namespace bi {
namespace {

// Elements a task should read at least: a thread costs a few microseconds to wake.
constexpr int64_t kTaskElements = 1 << 15;

// Narrower than this, rows are gathered rather than summed side by side.
constexpr int64_t kFewestColumns = 8;

struct Dims {
  bool reduced[kMaxDims] = {};
};

bool is_integer(const bi_tensor &t) { return t.dtype == BI_INT32 || t.dtype == BI_INT64; }

Dims check(const bi_tensor *x, const int32_t *dims, int32_t ndims, const bi_tensor *out,
           bool mean) {
  check_tensor(x, "x");
  check_tensor(out, "out");
  if (is_integer(*x) && !mean) {
    check_dtype_in(*out, "out", BI_INT64, BI_INT64);
  } else {
    check_float(*x, "x");
    check_dtype_in(*out, "out", x->dtype, BI_FLOAT32);
  }
  if (ndims < 0 || (ndims > 0 && dims == nullptr))
    fail(BI_INVALID_ARGUMENT, "dims: expected ndims dimensions, found NULL");
  Dims chosen;
  for (int i = 0; i < ndims; ++i) {
    const int32_t axis = check_axis(dims[i], *x, "dims");
    if (chosen.reduced[axis])
      fail(BI_INVALID_ARGUMENT, "dims: dimension " + std::to_string(axis) + " appears twice");
    chosen.reduced[axis] = true;
  }
  bool fits = out->ndim == x->ndim;
  for (int d = 0; fits && d < x->ndim; ++d)
    fits = out->shape[d] == (chosen.reduced[d] ? 1 : x->shape[d]);
  if (!fits)
    fail(BI_INVALID_ARGUMENT, "out: expected x's shape " + shape_text(*x) +
                                  " with extent 1 where reduced, found " + shape_text(*out));
  return chosen;
}

// The sum modulo 2^64 of integers: any order gives the same bits, so each output is one task.
template <typename T>
void sum_integers(const bi_tensor &x, const int64_t *x_stride, const Dims &chosen,
                  const bi_tensor &out, int threads) {
  Nest<1> reduced;
  Nest<2> outer;
  for (int d = 0; d < x.ndim; ++d) {
    const int64_t strides[2] = {x_stride[d], out.stride[d]};
    if (chosen.reduced[d])
      nest_append(reduced, x.shape[d], strides);
    else
      nest_append(outer, x.shape[d], strides);
  }
  const int64_t outputs = nest_count(outer), length = nest_count(reduced);
  const int inner = reduced.dims - 1;
  const int64_t run = inner >= 0 ? reduced.size[inner] : 1;
  const int64_t stride = inner >= 0 ? reduced.stride[0][inner] : 0;
  const int64_t grain = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, length));
  parallel_for((outputs + grain - 1) / grain, threads, [&](int64_t task) {
    for (int64_t i = task * grain; i < std::min(outputs, (task + 1) * grain); ++i) {
      const T *const row = static_cast<const T *>(x.data) + nest_offset(outer, 0, i);
      uint64_t sum = 0;
      for (int64_t first = 0; first < length; first += run) {
        const T *const terms = row + nest_offset(reduced, 0, first);
        for (int64_t j = 0; j < run; ++j)
          sum += static_cast<uint64_t>(static_cast<int64_t>(terms[j * stride]));
      }
      static_cast<int64_t *>(out.data)[nest_offset(outer, 1, i)] = static_cast<int64_t>(sum);
    }
  });
}

}  // namespace

void reduce_entry(const bi_tensor *x, const int32_t *dims, int32_t ndims, const bi_tensor *out,
                  int threads, bool mean) {
  const Dims chosen = check(x, dims, ndims, out, mean);
  check_threads(threads);
  if (element_count(*out) == 0) return;
  // Rows of no terms have no address to step from.
  const int64_t none[kMaxDims] = {};
  const int64_t *const x_stride = element_count(*x) > 0 ? x->stride : none;
  if (is_integer(*x)) {
    x->dtype == BI_INT64 ? sum_integers<int64_t>(*x, x_stride, chosen, *out, threads)
                         : sum_integers<int32_t>(*x, x_stride, chosen, *out, threads);
    return;
  }
  SumArgs args = {};
  args.x = x->data;
  args.out = out->data;
  args.x_dtype = x->dtype;
  args.out_dtype = out->dtype;
  args.columns = 1;

  int unit_stride = -1;
  for (int d = 0; d < x->ndim; ++d) {
    if (chosen.reduced[d])
      nest_append(args.reduced, x->shape[d], &x_stride[d]);
    else if (x_stride[d] == 1 && x->shape[d] >= kFewestColumns)
      unit_stride = d;
  }
  const bool row_is_contiguous =
      args.reduced.dims > 0 && args.reduced.stride[0][args.reduced.dims - 1] == 1;
  if (unit_stride >= 0 && !row_is_contiguous) {
    args.columns = x->shape[unit_stride];
    args.column_out_stride = out->stride[unit_stride];
  } else {
    unit_stride = -1;
  }
  for (int d = 0; d < x->ndim; ++d) {
    if (chosen.reduced[d] || d == unit_stride) continue;
    const int64_t strides[2] = {x_stride[d], out->stride[d]};
    nest_append(args.outer, x->shape[d], strides);
  }
  args.length = nest_count(args.reduced);
  if (args.length == 0) args.reduced = {};
  args.blocks = block_count(args.length);
  args.divisor = mean ? static_cast<float>(args.length) : 1.0f;

  const int64_t outer = nest_count(args.outer);
  const int64_t outputs = outer * args.columns;
  std::vector<float> partial;
  if (args.blocks > 1) {
    partial.resize(static_cast<size_t>(outputs * args.blocks));
    args.partial = partial.data();
  }
  auto *const sum = unit_stride >= 0 ? &BI_CALL(sum_columns) : &BI_CALL(sum_rows);
  const int64_t groups =
      unit_stride >= 0 ? (args.columns + kSumColumns - 1) / kSumColumns : args.columns;
  const int64_t units = outer * groups * args.blocks;
  const int64_t unit_elements =
      std::max<int64_t>(1, std::min(args.length, kSumBlock) * (unit_stride >= 0 ? kSumColumns : 1));
  const int64_t grain = std::max<int64_t>(1, kTaskElements / unit_elements);
  parallel_for((units + grain - 1) / grain, threads,
               [&](int64_t task) { sum(args, task * grain, std::min(units, (task + 1) * grain)); });
  if (args.partial != nullptr) {
    auto *const finish = &BI_CALL(sum_finish);
    parallel_for((outputs + kSumBlock - 1) / kSumBlock, threads, [&](int64_t task) {
      finish(args, task * kSumBlock, std::min(outputs, (task + 1) * kSumBlock));
    });
  }
}

}  // namespace bi

extern "C" bi_status bi_reduce_sum(const bi_tensor *x, const int32_t *dims, int32_t ndims,
                                   const bi_tensor *out, int threads) {
  return bi::guarded([&] { bi::reduce_entry(x, dims, ndims, out, threads, false); });
}
