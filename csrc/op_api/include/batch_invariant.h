/* SPDX-License-Identifier: Apache-2.0
 *
 * The C interface of the operator library for soc=cpu (libcust_opapi.so).
 *
 * Contract of every function
 *   - Results are a function of the values of one row (of one query row of one request) and of the
 *     reduced length alone: not of the number or position of other rows, of strides, of how a call
 *     was split in two, nor of `threads`. The order of each reduction is stated in
 *     csrc/ops/<operator>/README.md.
 *   - Sums are accumulated in fp32, whatever the tensors' type.
 *   - Which NaN a NaN is (sign and payload) is not part of the contract.
 *   - Nothing is kept between calls and no argument is retained: safe from any thread.
 *   - On failure a status other than BI_OK is returned, and bi_last_error() gives one line, naming
 *     the argument, for the calling thread. A wrong argument is found before an output is written
 *     to; after BI_OUT_OF_MEMORY outputs are unspecified.
 *   - Outputs may not overlap inputs, except where a function says so.
 *
 * Versioning: BI_ABI_VERSION changes when a function or a structure of this file changes its
 * meaning; adding a function does not change it. A caller compares it with bi_abi_version().
 */
#ifndef BATCH_INVARIANT_H
#define BATCH_INVARIANT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BI_API __attribute__((visibility("default")))
#else
#define BI_API
#endif

#define BI_ABI_VERSION 1

typedef enum bi_status {
  BI_OK = 0,
  BI_INVALID_ARGUMENT = 1, /* shape, stride, null pointer or value out of range */
  BI_UNSUPPORTED_DTYPE = 2,
  BI_OUT_OF_MEMORY = 3
} bi_status;

typedef enum bi_dtype {
  BI_FLOAT32 = 0,
  BI_BFLOAT16 = 1,
  BI_FLOAT16 = 2,
  BI_INT32 = 3,
  BI_INT64 = 4
} bi_dtype;

/* A view of memory: `ndim` extents and as many strides, in elements (0 for a broadcast extent). */
typedef struct bi_tensor {
  void *data;
  const int64_t *shape;
  const int64_t *stride;
  int32_t ndim;
  int32_t dtype; /* bi_dtype */
} bi_tensor;

BI_API uint32_t bi_abi_version(void);
/* Version of the run package, e.g. "0.1.0". */
BI_API const char *bi_version(void);
/* The instruction set that was chosen for this machine, the last of these that it runs: "portable",
 * "avx2", "avx512", "avx512_bf16", "amx" (x86-64), "neon" (AArch64). BI_CPU_ISA in the environment
 * forces one, read once; an unknown or unsupported name is an error that every operator returns,
 * and "invalid" here. */
BI_API const char *bi_cpu_isa(void);
/* The last error of the calling thread, or "". Valid until that thread's next call. */
BI_API const char *bi_last_error(void);

/* How a call is spread over threads. `run` must execute task(arg, i) once for each i in [0, tasks),
 * on up to `threads` threads, and return when all are done. By default the library starts threads
 * of its own for each call; an embedder that has a pool (OpenMP in PyTorch) hands it in once.
 * Not thread-safe against running operators. NULL restores the default. */
typedef void (*bi_task)(void *arg, int64_t index);
typedef void (*bi_run)(int64_t tasks, int threads, bi_task task, void *arg);
BI_API void bi_set_run(bi_run run);

/* ---- matmul --------------------------------------------------------------------------------
 * out[m,n] = sum_k a[m,k] * b[k,n] (+ bias[n]); a, b, out, bias of one type: float32, bfloat16
 * or float16. 2-D [M,K] x [K,N] -> [M,N], or 3-D with a leading
 * batch extent on a, b and out (stride 0 broadcasts). Any strides on a and b; out has a unit stride
 * in its last extent. bias is NULL or 1-D [N]. K = 0 gives bias or zeros. */
BI_API bi_status bi_matmul(const bi_tensor *a, const bi_tensor *b, const bi_tensor *bias,
                           const bi_tensor *out, int threads);

/* A weight that is used often is packed once. The packed form is for this machine's instruction set
 * and this library version only; it is never stored. Packed and unpacked give the same bits.
 * b is [K,N] (any strides), or [E,K,N] for E experts, packed one after another. */
BI_API size_t bi_matmul_packed_size(int64_t experts, int64_t k, int64_t n, int32_t dtype);
BI_API bi_status bi_matmul_pack(const bi_tensor *b, void *packed, size_t size, int threads);
BI_API bi_status bi_matmul_packed(const bi_tensor *a, const void *packed, size_t size,
                                  const bi_tensor *bias, const bi_tensor *out, int threads);

/* ---- grouped matmul (mixture of experts) ----------------------------------------------------
 * Rows group_list[e-1] .. group_list[e]-1 of a (0 before the first) are multiplied by expert e's
 * [K,N] matrix: each row's bits are those bi_matmul gives for it. group_list is int64 [E],
 * ascending, its last entry is T. a [T,K], out [T,N]. Exactly one of b ([E,K,N]) and packed. */
BI_API bi_status bi_grouped_matmul(const bi_tensor *a, const bi_tensor *b, const void *packed,
                                   size_t size, const int64_t *group_list, int64_t experts,
                                   const bi_tensor *out, int threads);

/* ---- reductions -----------------------------------------------------------------------------
 * Over the `ndims` distinct extents `dims` of x, in row-major order of those extents whatever the
 * strides are. out has x's ndim, with extent 1 where reduced; its type is x's or float32. A sum
 * also takes int32 and int64, modulo 2^64 into int64. */
BI_API bi_status bi_reduce_sum(const bi_tensor *x, const int32_t *dims, int32_t ndims,
                               const bi_tensor *out, int threads);
BI_API bi_status bi_reduce_mean(const bi_tensor *x, const int32_t *dims, int32_t ndims,
                                const bi_tensor *out, int threads);

/* ---- softmax, log_softmax over one extent -----------------------------------------------------
 * out has x's shape; its type is x's or float32. */
BI_API bi_status bi_softmax(const bi_tensor *x, int32_t dim, const bi_tensor *out, int threads);
BI_API bi_status bi_log_softmax(const bi_tensor *x, int32_t dim, const bi_tensor *out, int threads);

/* ---- rms_norm ---------------------------------------------------------------------------------
 * Over the last extent D. Where residual is not NULL: s = x + residual, rounded to x's type and
 * stored into residual_out (may be residual itself), and s is normalised. weight is NULL or [D].
 *   out = s / sqrt(mean(s^2) + eps) * weight
 * out may be x. rstd is NULL or float32 with x's shape and last extent 1. */
BI_API bi_status bi_rms_norm(const bi_tensor *x, const bi_tensor *residual, const bi_tensor *weight,
                             double eps, const bi_tensor *out, const bi_tensor *residual_out,
                             const bi_tensor *rstd, int threads);

/* ---- attention ----------------------------------------------------------------------------------
 * Every query row of every request is computed by the same sequence of operations, in prefill and
 * decode alike: key/value tiles of a fixed length from position 0 upward, online softmax in fp32.
 * Request r has query rows q_end[r-1] .. q_end[r]-1 of `query` (0 before the first) and kv_len[r]
 * keys. Its last query row sees the last key (causal, aligned at the end). */
typedef struct bi_attention_args {
  size_t struct_size; /* sizeof(bi_attention_args); later versions append members */
  bi_tensor query;    /* [T, heads, D] */
  /* Paged (block_table != NULL): [blocks, block_size, kv_heads, D]; position p of request r lies in
   * block block_table[r * block_table_stride + p / block_size].
   * Not paged: [T_kv, kv_heads, D], requests one after another, ends in kv_end. Any strides, with a
   * unit stride in D. */
  bi_tensor key;
  bi_tensor value;
  const int32_t *block_table;
  int64_t block_table_stride;
  const int64_t *kv_end; /* not paged: cumulative ends; paged: NULL */
  const int64_t *q_end;  /* [requests], cumulative, ascending, last = T */
  const int64_t *kv_len; /* [requests] */
  int64_t requests;
  float scale;
  int32_t causal;      /* 1: row i of a request sees keys 0 .. kv_len - q_len + i */
  int64_t window_left; /* -1: no limit; else the row's own key and that many before it are seen */
  bi_tensor out;       /* [T, heads, D], query's type */
  bi_tensor lse;       /* data NULL, or float32 [T, heads, 1]: log(sum(exp(scale * q.k))) */
  /* -1: no limit; else the row's own key and that many after it are seen. A struct_size that ends
   * before this member means -1. */
  int64_t window_right;
} bi_attention_args;

/* heads is a multiple of kv_heads. A row that sees no key gives zeros and an lse of -inf. */
BI_API bi_status bi_attention(const bi_attention_args *args, int threads);

#ifdef __cplusplus
}
#endif
#endif
