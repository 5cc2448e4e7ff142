// SPDX-License-Identifier: Apache-2.0
#include "vec_operations.h"

#include "vec.h"

namespace bi {
namespace BI_ISA {
namespace {

template <Vec (*kOperation)(Vec, Vec, Vec)>
void apply(const float *a, const float *b, const float *c, float *out) {
  kOperation(Vec::load(a), Vec::load(b), Vec::load(c)).store(out);
}
Vec add(Vec a, Vec b, Vec) { return a + b; }
Vec subtract(Vec a, Vec b, Vec) { return a - b; }
Vec multiply(Vec a, Vec b, Vec) { return a * b; }
Vec divide(Vec a, Vec b, Vec) { return a / b; }
Vec fma(Vec a, Vec b, Vec c) { return Vec::fma(a, b, c); }
Vec max(Vec a, Vec b, Vec) { return Vec::max(a, b); }
Vec min(Vec a, Vec b, Vec) { return Vec::min(a, b); }
Vec sqrt(Vec a, Vec, Vec) { return Vec::sqrt(a); }
Vec round(Vec a, Vec, Vec) { return Vec::round(a); }
Vec scale2(Vec x, Vec n, Vec) { return Vec::scale2(x, n); }
Vec select_lt(Vec x, Vec y, Vec a) { return Vec::select_lt(x, y, a, y); }
Vec select_nan(Vec x, Vec a, Vec b) { return Vec::select_nan(x, a, b); }
Vec round_bf16(Vec a, Vec, Vec) { return Vec::round_bf16(a); }
Vec round_f16(Vec a, Vec, Vec) { return Vec::round_f16(a); }

void keep(const float *x, int begin, int end, float fill, float *out) {
  Vec::keep(Vec::load(x), begin, end, fill).store(out);
}
float reduce_add_of(const float *x) { return reduce_add(Vec::load(x)); }
float largest(const float *x) { return Vec::load(x).largest(); }
float first(const float *x) { return Vec::load(x).first(); }

template <typename T>
void load(const T *p, float *out) {
  Vec::load(p).store(out);
}
template <typename T>
void store(const float *x, T *p) {
  Vec::load(x).store(p);
}
template <typename T>
void load_n(const T *p, int n, float fill, float *out) {
  Vec::load_n(p, n, fill).store(out);
}
template <typename T>
void store_n(const float *x, T *p, int n) {
  Vec::load(x).store_n(p, n);
}

constexpr VecOperations kOperations = {
    apply<add>,        apply<subtract>,  apply<multiply>,
    apply<divide>,     apply<fma>,       apply<max>,
    apply<min>,        apply<sqrt>,      apply<round>,
    apply<scale2>,     apply<select_lt>, apply<select_nan>,
    apply<round_bf16>, apply<round_f16>, keep,
    reduce_add_of,     largest,          first,
    load<bf16>,        load<f16>,        store<bf16>,
    store<f16>,        load_n<float>,    load_n<bf16>,
    load_n<f16>,       store_n<float>,   store_n<bf16>,
    store_n<f16>,
};

}  // namespace

const VecOperations &vec_operations() { return kOperations; }

}  // namespace BI_ISA
}  // namespace bi
