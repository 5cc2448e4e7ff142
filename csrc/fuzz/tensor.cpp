// SPDX-License-Identifier: Apache-2.0
#include "tensor.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace bi_fuzz {
namespace {

// Elements between the outermost ones that a tensor may span.
constexpr int64_t kMostElements = 1 << 20;

Shape random_strides(Random &random, const Shape &shape, const Layout &layout) {
  const size_t dims = shape.size();
  // The order in memory, innermost first: row-major, or any.
  std::vector<size_t> order(dims);
  std::iota(order.begin(), order.end(), size_t{0});
  std::reverse(order.begin(), order.end());
  if (random.percent(60))
    for (size_t i = dims; i > 1; --i)
      std::swap(order[i - 1], order[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  const auto unit = std::find(order.begin(), order.end(), static_cast<size_t>(layout.unit_dim));
  if (unit != order.end()) std::rotate(order.begin(), unit, unit + 1);

  const bool gaps = random.percent(40), backwards = random.percent(25);
  const bool empty = count_of(shape) == 0;
  const bool repeats = layout.role == Role::input && random.percent(25);
  Shape stride(dims);
  int64_t step = 1;
  for (const size_t d : order) {
    const bool fixed = static_cast<int>(d) == layout.unit_dim;
    int64_t own = step;
    if (gaps && !fixed && random.percent(50)) own += random.below(4);
    if (repeats && !fixed && random.percent(50)) own = random.below(std::max<int64_t>(1, step));
    if (repeats && !fixed && random.percent(30)) own = 0;
    const int64_t reach = own * std::max<int64_t>(0, shape[d] - 1);
    if (step + reach > kMostElements && layout.role == Role::input && !fixed) own = 0;
    // Elements of the dimensions so far lie within `step`, so the next one begins behind them.
    step = std::max(step, step + own * std::max<int64_t>(0, shape[d] - 1));
    stride[d] = backwards && !fixed && random.percent(50) ? -own : own;
    // The stride of a single element, or of none, means nothing and may be anything.
    if ((shape[d] == 1 || empty) && !fixed && random.percent(25))
      stride[d] = random.one_of<int64_t>({0, 1, -1, 77, INT64_MAX, INT64_MIN, INT64_MAX / 3});
  }
  return stride;
}

int64_t origin_of(const Shape &shape, const Shape &stride) {
  int64_t origin = 0;
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] > 1 && stride[d] < 0) origin -= (shape[d] - 1) * stride[d];
  return origin;
}

int64_t span_of(const Shape &shape, const Shape &stride) {
  if (count_of(shape) == 0) return 0;
  int64_t span = 1;
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] > 1) span += (shape[d] - 1) * (stride[d] < 0 ? -stride[d] : stride[d]);
  return span;
}

}  // namespace

int64_t count_of(const Shape &shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

std::string text_of(const Shape &shape) {
  std::string text = "[";
  for (const int64_t extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "]";
}

Tensor::Tensor(Random &random, int32_t dtype, const Shape &shape, const Layout &layout)
    : dtype_(dtype),
      shape_(shape),
      stride_(random_strides(random, shape, layout)),
      count_(count_of(shape)),
      buffer_(static_cast<size_t>(span_of(shape_, stride_) * bytes_of(dtype)), random_edge(random)),
      origin_(count_ == 0 ? 0 : origin_of(shape_, stride_) * bytes_of(dtype)) {
  // NaN of every type, or an unremarkable number: what is read beside the elements, or not written
  // to them, shows.
  std::memset(buffer_.data(), random.percent(50) ? 0xff : 0x3c, buffer_.size());
}

unsigned char *Tensor::at(int64_t index) const {
  int64_t offset = 0;
  for (size_t d = shape_.size(); d-- > 0; index /= shape_[d])
    if (shape_[d] > 1) offset += index % shape_[d] * stride_[d];
  return buffer_.data() + origin_ + offset * bytes_of(dtype_);
}

int64_t Tensor::get_integer(int64_t index) const {
  int64_t wide = 0;
  int32_t narrow = 0;
  if (dtype_ == BI_INT64)
    std::memcpy(&wide, at(index), sizeof(wide));
  else
    std::memcpy(&narrow, at(index), sizeof(narrow));
  return dtype_ == BI_INT64 ? wide : narrow;
}

uint64_t Tensor::get_bits(int64_t index) const {
  uint64_t bits = 0;
  std::memcpy(&bits, at(index), static_cast<size_t>(bytes_of(dtype_)));
  return bits;
}

void Tensor::set_integer(int64_t index, int64_t x) {
  const auto narrow = static_cast<int32_t>(x);
  if (dtype_ == BI_INT64)
    std::memcpy(at(index), &x, sizeof(x));
  else
    std::memcpy(at(index), &narrow, sizeof(narrow));
}

std::vector<double> Tensor::values() const {
  std::vector<double> all(static_cast<size_t>(count_));
  for (int64_t i = 0; i < count_; ++i) all[static_cast<size_t>(i)] = get(i);
  return all;
}

void Tensor::remember() { remembered_.assign(buffer_.data(), buffer_.data() + buffer_.size()); }

bool Tensor::elements_unchanged() const {
  return remembered_.empty() ||
         std::memcmp(remembered_.data(), buffer_.data(), remembered_.size()) == 0;
}

bool Tensor::gaps_unchanged() const {
  std::vector<bool> element(buffer_.size(), false);
  for (int64_t i = 0; i < count_; ++i) {
    const auto first = static_cast<size_t>(at(i) - buffer_.data());
    for (int64_t b = 0; b < bytes_of(dtype_); ++b) element[first + static_cast<size_t>(b)] = true;
  }
  for (size_t i = 0; i < buffer_.size(); ++i)
    if (!element[i] && remembered_[i] != buffer_.data()[i]) return false;
  return true;
}

bi_tensor Tensor::view() const {
  // Tensors without elements may have any pointer; where there are bytes the view begins at
  // element 0, which negative strides put behind others.
  void *const data = count_ == 0 ? nullptr : buffer_.data() + origin_;
  return {data, shape_.data(), stride_.data(), static_cast<int32_t>(shape_.size()), dtype_};
}

}  // namespace bi_fuzz
