// SPDX-License-Identifier: Apache-2.0
//
// The operator library of stage 1: found when the first operator is called, opened by absolute
// path.
#ifndef BATCH_INVARIANT_OPS_LIBRARY_H
#define BATCH_INVARIANT_OPS_LIBRARY_H

#include <string>

#include "batch_invariant.h"

namespace batch_invariant_ops {

// Every function of batch_invariant.h that is called here.
#define BATCH_INVARIANT_OPS_FUNCTIONS(F) \
  F(bi_abi_version)                      \
  F(bi_version)                          \
  F(bi_cpu_isa)                          \
  F(bi_last_error)                       \
  F(bi_set_run)                          \
  F(bi_matmul)                           \
  F(bi_matmul_packed_size)               \
  F(bi_matmul_pack)                      \
  F(bi_matmul_packed)                    \
  F(bi_grouped_matmul)                   \
  F(bi_reduce_sum)                       \
  F(bi_reduce_mean)                      \
  F(bi_softmax)                          \
  F(bi_log_softmax)                      \
  F(bi_rms_norm)                         \
  F(bi_attention)

struct Library {
  std::string path;
#define BATCH_INVARIANT_OPS_MEMBER(name) decltype(&::name) name = nullptr;
  BATCH_INVARIANT_OPS_FUNCTIONS(BATCH_INVARIANT_OPS_MEMBER)
#undef BATCH_INVARIANT_OPS_MEMBER
};

// The library, opened now if it was not. Throws c10::Error, naming `op`, the package to install and
// the places searched, where none can be used; a later call searches again, since the environment
// may have been set in between. What was opened once stays in use.
const Library &library(const char *op);

// Throws what a status other than BI_OK means, with the library's own words.
void check_status(const Library &lib, const char *op, bi_status status);

// The prefix of the running Python (sys.prefix), below which share/ascend/opp is searched.
void set_prefix(std::string prefix);

}  // namespace batch_invariant_ops

#endif
