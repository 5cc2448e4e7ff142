// SPDX-License-Identifier: Apache-2.0
#ifndef BATCH_INVARIANT_OPS_PACKED_H
#define BATCH_INVARIANT_OPS_PACKED_H

#include <cstdint>

#include "arguments.h"
#include "library.h"

namespace batch_invariant_ops {

// Throws unless `packed` has the form and size of `experts` packed matrices [n, k] of x's type, on
// x's device.
void check_packed(const char *op, const Library &lib, const Argument &x, const at::Tensor &packed,
                  int64_t experts, int64_t k, int64_t n);

}  // namespace batch_invariant_ops

#endif
