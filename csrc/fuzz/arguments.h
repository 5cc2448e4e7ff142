// SPDX-License-Identifier: Apache-2.0
//
// The tensors of a call as the C interface takes them, and the ways to get one wrong.
#ifndef BI_FUZZ_ARGUMENTS_H
#define BI_FUZZ_ARGUMENTS_H

#include <cstdint>
#include <string>
#include <vector>

#include "random.h"
#include "report.h"
#include "tensor.h"

namespace bi_fuzz {

struct Argument {
  std::string name;
  Shape shape, stride;
  bi_tensor view;
  bool present = true;    // else NULL is handed over
  bool required = true;   // NULL is an error
  bool tied = true;       // each of its extents is another argument's too
  bool integers = false;  // int32 and int64 are types that it may have

  Argument(std::string name, const Tensor &tensor);
  Argument(Argument &&other) noexcept;
  Argument &operator=(Argument &&) = delete;
  const bi_tensor *pointer() const { return present ? &view : nullptr; }
};

// Gets one argument or `threads` wrong.
Spoilt spoil(Random &random, std::vector<Argument> &arguments, int *threads);

// One thread mostly; several of the library's own, or of an embedder that runs tasks backwards.
int random_threads(Random &random);

}  // namespace bi_fuzz

#endif
