// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include <c10/util/Exception.h>

namespace batch_invariant_ops {
namespace {

alignas(64) char empty[64];

int32_t code_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return BI_FLOAT32;
    case at::kBFloat16:
      return BI_BFLOAT16;
    case at::kHalf:
      return BI_FLOAT16;
    case at::kInt:
      return BI_INT32;
    case at::kLong:
      return BI_INT64;
    default:
      return -1;
  }
}

}  // namespace

bool is_float(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

void check_device(const char *op, const Argument &reference, const Argument &argument) {
  TORCH_CHECK(argument.tensor.device() == reference.tensor.device(), op,
              ": Expected all tensors to be on the same device, but ", argument.name, " is on ",
              argument.tensor.device(), " and ", reference.name, " is on ",
              reference.tensor.device());
}

void check_arguments(const char *op, std::initializer_list<Argument> arguments) {
  const Argument &first = *arguments.begin();
  for (const Argument &argument : arguments) {
    check_device(op, first, argument);
    TORCH_CHECK_NOT_IMPLEMENTED(is_float(argument.tensor.scalar_type()), op, ": ", argument.name,
                                " has dtype ", argument.tensor.scalar_type(),
                                "; expected Float, BFloat16 or Half");
    TORCH_CHECK(argument.tensor.scalar_type() == first.tensor.scalar_type(), op, ": expected ",
                first.name, " and ", argument.name,
                " to have the same dtype, but got: ", first.tensor.scalar_type(),
                " != ", argument.tensor.scalar_type());
  }
}

int32_t dtype_code(const char *op, const Argument &argument) {
  const int32_t code = code_of(argument.tensor.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(code >= 0, op, ": ", argument.name, " has dtype ",
                              argument.tensor.scalar_type());
  return code;
}

void *input_data(const at::Tensor &tensor) {
  return tensor.numel() == 0 ? empty : const_cast<void *>(tensor.const_data_ptr());
}

void *output_data(const at::Tensor &tensor) {
  return tensor.numel() == 0 ? empty : tensor.mutable_data_ptr();
}

bi_tensor view_of(const at::Tensor &tensor) {
  return {input_data(tensor), tensor.sizes().data(), tensor.strides().data(),
          static_cast<int32_t>(tensor.dim()), code_of(tensor.scalar_type())};
}

bi_tensor output_view(const at::Tensor &tensor) {
  bi_tensor view = view_of(tensor);
  view.data = output_data(tensor);
  return view;
}

}  // namespace batch_invariant_ops
