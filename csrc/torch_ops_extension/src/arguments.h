// SPDX-License-Identifier: Apache-2.0
//
// What every operator asks of its tensors, on a CPU and on the Meta device alike, and how a tensor
// is handed to the operator library.
#ifndef BATCH_INVARIANT_OPS_ARGUMENTS_H
#define BATCH_INVARIANT_OPS_ARGUMENTS_H

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>

#include "batch_invariant.h"

namespace batch_invariant_ops {

struct Argument {
  const char *name;
  const at::Tensor &tensor;
};

// Whether it is a floating-point type that the operators know.
bool is_float(at::ScalarType type);

// The tensors are of one floating-point type that the operators know, and on one device. Throws
// c10::Error in the words of `op`, naming the first argument that differs from those before it.
void check_arguments(const char *op, std::initializer_list<Argument> arguments);

// The same for the device alone.
void check_device(const char *op, const Argument &reference, const Argument &argument);

// The code of a type in batch_invariant.h.
int32_t dtype_code(const char *op, const Argument &argument);

// Shapes and strides of the result point into `tensor`, which has to outlive it.
bi_tensor view_of(const at::Tensor &tensor);
bi_tensor output_view(const at::Tensor &tensor);

// Memory of a tensor that is only read, or written. Never null: the address of an empty tensor
// means nothing, but the library refuses null.
void *input_data(const at::Tensor &tensor);
void *output_data(const at::Tensor &tensor);

}  // namespace batch_invariant_ops

#endif
