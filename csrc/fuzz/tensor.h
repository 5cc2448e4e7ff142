// SPDX-License-Identifier: Apache-2.0
//
// Tensors at random strides in buffers that hold them and nothing else.
#ifndef BI_FUZZ_TENSOR_H
#define BI_FUZZ_TENSOR_H

#include <cstdint>
#include <string>
#include <vector>

#include "format.h"
#include "memory.h"
#include "random.h"

namespace bi_fuzz {

using Shape = std::vector<int64_t>;

int64_t count_of(const Shape &shape);
std::string text_of(const Shape &shape);

// Where elements may lie. An input may have them anywhere: behind one another, backwards, the same
// one again and again. Elements of an output are apart from one another.
enum class Role { input, output };

struct Layout {
  Role role = Role::input;
  int unit_dim = -1;  // its stride is 1
};

class Tensor {
 public:
  Tensor(Random &random, int32_t dtype, const Shape &shape, const Layout &layout);

  int32_t dtype() const { return dtype_; }
  const Shape &shape() const { return shape_; }
  const Shape &stride() const { return stride_; }
  int64_t count() const { return count_; }

  // Elements by their row-major index.
  double get(int64_t index) const { return read_element(dtype_, at(index)); }
  int64_t get_integer(int64_t index) const;
  uint64_t get_bits(int64_t index) const;
  void set(int64_t index, double x) { write_element(dtype_, at(index), x); }
  void set_integer(int64_t index, int64_t x);
  // The same as one vector.
  std::vector<double> values() const;

  // Remembers all bytes; whether they are still the same: those of elements, those between them.
  void remember();
  bool elements_unchanged() const;
  bool gaps_unchanged() const;

  bi_tensor view() const;

 private:
  unsigned char *at(int64_t index) const;

  int32_t dtype_;
  Shape shape_, stride_;
  int64_t count_;
  Buffer buffer_;
  int64_t origin_;  // bytes before element 0 of the view
  std::vector<unsigned char> remembered_;
};

}  // namespace bi_fuzz

#endif
