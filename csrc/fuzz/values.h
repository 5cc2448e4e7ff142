// SPDX-License-Identifier: Apache-2.0
//
// What tensors hold: a call draws one kind of number and a sprinkling of special ones.
#ifndef BI_FUZZ_VALUES_H
#define BI_FUZZ_VALUES_H

#include <vector>

#include "random.h"
#include "tensor.h"

namespace bi_fuzz {

class Values {
 public:
  explicit Values(Random &random);
  double next(const Format &format);
  void fill(Tensor &tensor);

 private:
  enum class Kind { ordinary, wide, huge, small, counts, any };

  Random &random_;
  Kind kind_;
  std::vector<double> specials_;  // of infinities, NaN and zeros; none in half of the calls
  int64_t one_in_;                // a special one in so many
};

}  // namespace bi_fuzz

#endif
