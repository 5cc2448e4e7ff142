// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <cinttypes>
#include <cstdio>

namespace bi_fuzz {

void Report::begin(int64_t call, const std::string &operation) {
  ++calls;
  call_ = call;
  shown_ = 0;
  operation_ = operation;
  description_.clear();
  describe(operation);
}

void Report::describe(const std::string &text) {
  if (text != operation_) description_ += " " + text;
  for (const char c : text)
    digest = (digest ^ static_cast<unsigned char>(c)) * uint64_t{1099511628211u};
}

void Report::describe(const char *name, const Tensor &tensor) {
  static const char *const types[] = {"f32", "bf16", "f16", "i32", "i64"};
  describe(std::string(name) + "=" + types[tensor.dtype()] + text_of(tensor.shape()) + "/" +
           text_of(tensor.stride()));
  // The values too, by a few of them: all would take longer than the call.
  for (int64_t i = 0; i < tensor.count(); i += 1 + tensor.count() / 4)
    digest = (digest ^ tensor.get_bits(i)) * uint64_t{1099511628211u};
}

void Report::finding(const std::string &what) {
  ++findings;
  constexpr int64_t kShown = 2;  // of one call
  if (++shown_ > kShown) return;
  std::fprintf(stderr, "finding in call %" PRId64 ": %s:%s: %s\n", call_, operation_.c_str(),
               description_.c_str(), what.c_str());
}

bool Report::succeeded(bi_status status) {
  const std::string message = bi_last_error();
  if (status == BI_OK && message.empty()) return true;
  finding("expected success, found status " + std::to_string(status) + ", '" + message + "'");
  return false;
}

bool Report::returned(bi_status status, const Spoilt &spoilt, const std::vector<Output> &outputs) {
  for (const Output &output : outputs) untouched(output.name, *output.tensor, spoilt.done());
  if (!spoilt.done()) return succeeded(status);
  ++refusals;
  const std::string message = bi_last_error();
  bool named = false;
  std::string names;
  for (const std::string &name : spoilt.names) {
    named |= message.rfind(name, 0) == 0;
    names += (names.empty() ? "" : " or ") + name;
  }
  if (status == BI_OK || !named || message.find('\n') != std::string::npos)
    finding(spoilt.what + ": expected an error that names " + names + ", found status " +
            std::to_string(status) + ", '" + message + "'");
  return false;
}

void Report::untouched(const char *name, const Tensor &tensor, bool elements) {
  if (elements && !tensor.elements_unchanged())
    finding(std::string(name) + " was written to");
  else if (!tensor.gaps_unchanged())
    finding(std::string(name) + " was written to between its elements");
}

void Report::element(const char *name, const Tensor &output, int64_t index,
                     const Expected &expected) {
  ++elements;
  const Format format = format_of(output.dtype());
  const Real placed = rounded(expected.placed, {format, false});
  if (placed.open) {
    ++open;
    return;
  }
  const double found = output.get(index);
  bool right;
  double allowed = 0.0;
  if (!std::isfinite(placed.value)) {
    ++special;
    right = std::isnan(placed.value) ? std::isnan(found) : found == placed.value;
  } else {
    // One in a hundred for what bounds to first order leave out.
    const double rounding = format.unit() * (std::fabs(expected.exact) + expected.error);
    allowed = 1.01 * (expected.error + rounding) + format.tiny();
    right = std::fabs(found - expected.exact) <= allowed;
  }
  if (right) return;
  char text[256];
  std::snprintf(text, sizeof(text), "%s, element %" PRId64 ": expected %.9g +- %.3g, found %.9g",
                name, index, std::isfinite(placed.value) ? expected.exact : placed.value, allowed,
                found);
  finding(text);
}

}  // namespace bi_fuzz
