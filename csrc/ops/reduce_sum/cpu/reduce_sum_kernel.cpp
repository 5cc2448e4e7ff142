// SPDX-License-Identifier: Apache-2.0
#include "reduce_sum_kernel.h"

#include "float_types.h"
#include "reduce.h"

namespace bi {
namespace BI_ISA {
namespace {

void write(const SumArgs &args, int64_t outer, int64_t column, float sum) {
  const int64_t at = nest_offset(args.outer, 1, outer) + column * args.column_out_stride;
  const float value = sum / args.divisor;
  with_float_type(args.out_dtype, [&](auto type) {
    store_float(static_cast<decltype(type) *>(args.out) + at, value);
  });
}

// Copies terms [begin, begin + n) of a row to `terms`, as fp32.
template <typename T>
void gather(const T *x, const Nest<1> &reduced, int64_t begin, int64_t n, float *terms) {
  const int inner = reduced.dims - 1;
  const int64_t run = inner >= 0 ? reduced.size[inner] : 1;
  const int64_t stride = inner >= 0 ? reduced.stride[0][inner] : 0;
  for (int64_t done = 0; done < n;) {
    const int64_t skip = (begin + done) % run;
    const T *p = x + nest_offset(reduced, 0, begin + done);
    const int64_t left = n - done;
    const int64_t count = run - skip < left ? run - skip : left;
    for (int64_t i = 0; i < count; ++i) terms[done + i] = to_float(p[i * stride]);
    done += count;
  }
}

template <typename T>
float block_sum_contiguous(const T *x, int64_t n) {
  struct {
    const T *x;
    Vec operator()(Vec acc, int64_t i) const { return acc + Vec::load(x + i); }
    Vec operator()(Vec acc, int64_t i, int count) const { return acc + Vec::load_n(x + i, count); }
  } term{x};
  return block_sum(n, term);
}

template <typename T>
void rows(const SumArgs &args, int64_t begin, int64_t end) {
  float terms[kSumBlock];
  const bool contiguous =
      args.reduced.dims == 0 || (args.reduced.dims == 1 && args.reduced.stride[0][0] == 1);
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t outer = unit / args.blocks;
    const int64_t block = unit % args.blocks;
    const T *x = static_cast<const T *>(args.x) + nest_offset(args.outer, 0, outer);
    const int64_t first = block * kSumBlock;
    const int64_t n = block_length(args.length, block);
    float sum;
    if (contiguous) {
      sum = block_sum_contiguous(x + first, n);
    } else {
      gather(x, args.reduced, first, n, terms);
      sum = block_sum_contiguous(terms, n);
    }
    if (args.partial != nullptr)
      args.partial[unit] = sum;
    else
      write(args, outer, 0, sum);
  }
}

template <typename T>
void columns(const SumArgs &args, int64_t begin, int64_t end) {
  constexpr int kVecs = kSumColumns / kLanes;
  const int64_t groups = (args.columns + kSumColumns - 1) / kSumColumns;
  const int inner = args.reduced.dims - 1;
  const int64_t run = inner >= 0 ? args.reduced.size[inner] : 1;
  const int64_t stride = inner >= 0 ? args.reduced.stride[0][inner] : 0;
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t block = unit % args.blocks;
    const int64_t group = unit / args.blocks % groups;
    const int64_t outer = unit / args.blocks / groups;
    const int64_t column = group * kSumColumns;
    const int64_t left = args.columns - column;
    const int64_t count = left < kSumColumns ? left : kSumColumns;
    const T *x = static_cast<const T *>(args.x) + nest_offset(args.outer, 0, outer) + column;
    const int64_t first = block * kSumBlock;
    // Terms come in ascending order, so the offset of the next one is followed, not computed.
    int64_t in_run = first % run;
    const T *p = x + nest_offset(args.reduced, 0, first);
    int64_t next = first;
    Vec sums[kVecs];
    block_sum_columns<kVecs>(block_length(args.length, block), sums, [&](Vec *acc, int64_t) {
      if (count == kSumColumns) {
        for (int v = 0; v < kVecs; ++v) acc[v] = acc[v] + Vec::load(p + v * kLanes);
      } else {
        for (int v = 0; v < kVecs; ++v) {
          const int64_t rest = count - v * kLanes;
          if (rest <= 0) break;
          acc[v] = acc[v] + Vec::load_n(p + v * kLanes, static_cast<int>(rest < 16 ? rest : 16));
        }
      }
      ++next;
      if (++in_run < run) {
        p += stride;
      } else if (next < args.length) {
        in_run = 0;
        p = x + nest_offset(args.reduced, 0, next);
      }
    });
    float values[kSumColumns];
    for (int v = 0; v < kVecs; ++v) sums[v].store(values + v * kLanes);
    for (int64_t c = 0; c < count; ++c) {
      if (args.partial != nullptr)
        args.partial[(outer * args.columns + column + c) * args.blocks + block] = values[c];
      else
        write(args, outer, column + c, values[c]);
    }
  }
}

}  // namespace

void sum_rows(const SumArgs &args, int64_t begin, int64_t end) {
  with_float_type(args.x_dtype, [&](auto type) { rows<decltype(type)>(args, begin, end); });
}

void sum_columns(const SumArgs &args, int64_t begin, int64_t end) {
  with_float_type(args.x_dtype, [&](auto type) { columns<decltype(type)>(args, begin, end); });
}

void sum_finish(const SumArgs &args, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i)
    write(args, i / args.columns, i % args.columns,
          add_blocks(args.partial + i * args.blocks, args.blocks));
}

}  // namespace BI_ISA
}  // namespace bi
