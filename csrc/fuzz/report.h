// SPDX-License-Identifier: Apache-2.0
//
// What calls are expected to give, what they gave, and the count of it.
#ifndef BI_FUZZ_REPORT_H
#define BI_FUZZ_REPORT_H

#include <cstdint>
#include <string>
#include <vector>

#include "real.h"
#include "tensor.h"

namespace bi_fuzz {

// What one element of an output may be.
struct Expected {
  Real placed;   // before the rounding to the output's type
  double exact;  // in float64
  double error;  // that the operator's README allows against `exact`, but for that rounding
};

// A call that must fail: what is wrong with it, and which arguments its message may begin with.
struct Spoilt {
  std::string what;
  std::vector<std::string> names;
  bool done() const { return !what.empty(); }
};

struct Output {
  const char *name;
  const Tensor *tensor;
};

class Report {
 public:
  // The call that the following is about.
  void begin(int64_t call, const std::string &operation);
  // Words that tell this call from others, for findings; also makes the digest.
  void describe(const std::string &text);
  void describe(const char *name, const Tensor &tensor);

  void finding(const std::string &what);
  // The call succeeded and left bi_last_error() empty.
  bool succeeded(bi_status status);
  // Whether the results are worth a look: the call was right, and succeeded. A wrong one has to be
  // refused in one line, before anything is written.
  bool returned(bi_status status, const Spoilt &spoilt, const std::vector<Output> &outputs);
  // Beside the elements of `tensor` nothing was written; and (unchanged) not to them either.
  void untouched(const char *name, const Tensor &tensor, bool elements);
  void element(const char *name, const Tensor &output, int64_t index, const Expected &expected);

  int64_t calls = 0, refusals = 0, elements = 0, special = 0, open = 0, findings = 0;
  // FNV-1a over the descriptions: the same for the same calls.
  uint64_t digest = 14695981039346656037u;

 private:
  int64_t call_ = 0, shown_ = 0;
  std::string operation_, description_;
};

}  // namespace bi_fuzz

#endif
