// SPDX-License-Identifier: Apache-2.0
//
// rms_norm against its numeric contract.
#include "testing.h"

namespace {

using namespace bi_test;

struct Result {
  Tensor out, residual, rstd;
};

Result rms_norm(Tensor x, Tensor *residual, Tensor *weight, int threads, Shape out_stride = {}) {
  if (out_stride.empty()) out_stride = Tensor::row_major(x.shape);
  Shape one = x.shape;
  one.back() = 1;
  Result r{Tensor(x.dtype, x.shape, out_stride), x, Tensor(BI_FLOAT32, one)};
  const bi_tensor vx = x.view(), vo = r.out.view(), vr = r.rstd.view(), vs = r.residual.view();
  const bi_tensor vi = residual != nullptr ? residual->view() : bi_tensor{};
  const bi_tensor vw = weight != nullptr ? weight->view() : bi_tensor{};
  expect_ok(bi_rms_norm(&vx, residual != nullptr ? &vi : nullptr, weight != nullptr ? &vw : nullptr,
                        1e-6, &vo, residual != nullptr ? &vs : nullptr, &vr, threads),
            "bi_rms_norm");
  return r;
}

// rstd within its bound of the exact one; given rstd, every further rounding exactly as stated.
void test_contract() {
  Values values(1);
  int64_t one_rounding_differs = 0;
  for (int32_t dtype : kDtypes)
    for (int32_t weight_dtype : {dtype, static_cast<int32_t>(BI_FLOAT32)})
      for (int64_t n : {1, 7, 64, 80, 128, 1000, 2048, 5120, 12288})
        for (bool with_residual : {false, true}) {
          Tensor x = values.tensor(dtype, {3, n}), residual = values.tensor(dtype, {3, n});
          Tensor weight = values.tensor(weight_dtype, {n});
          Result got = rms_norm(x, with_residual ? &residual : nullptr, &weight, 2);
          Result bare = rms_norm(x, with_residual ? &residual : nullptr, nullptr, 2);
          record(got.out);
          record(got.rstd);
          record(bare.out);
          for (int64_t r = 0; r < 3; ++r) {
            double squares = 0;
            for (int64_t i = r * n; i < (r + 1) * n; ++i) {
              float s = x.get(i);
              if (with_residual) {
                s = rounded(s + residual.get(i), dtype);
                expect(bits(got.residual.get(i)) == bits(s), "the sum is rounded and stored");
              }
              squares += static_cast<double>(s) * s;
              const float y = s * got.rstd.get(r);
              const float w = weight.get(i - r * n);
              expect(bits(got.out.get(i)) == bits(rounded(rounded(y, weight_dtype) * w, dtype)),
                     "normalised, rounded to weight's type, scaled, rounded");
              expect(bits(bare.out.get(i)) == bits(rounded(y, dtype)), "no weight: one rounding");
              one_rounding_differs += bits(got.out.get(i)) != bits(rounded(y * w, dtype));
            }
            const double exact = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-6);
            expect(std::fabs(got.rstd.get(r) - exact) <= 38 * kUnit * 1.01 * exact,
                   "rstd within the stated bound");
          }
        }
  expect(one_rounding_differs > 0, "with one rounding some bfloat16 element would differ");
}

void test_layouts_neighbours_threads() {
  Values values(2);
  for (int32_t dtype : kDtypes)
    for (int64_t n : {80, 128, 4100}) {
      Tensor weight = values.tensor(dtype, {n});
      Tensor alone = values.tensor(dtype, {1, 1, n});
      Result expected = rms_norm(alone, nullptr, &weight, 1);
      Tensor many = values.tensor(dtype, {9, 4, n});
      const int64_t at = values.below(36);
      for (int64_t i = 0; i < n; ++i) many.set(at * n + i, alone.get(i));
      Result contiguous = rms_norm(many, nullptr, &weight, 1);
      record(contiguous.out);
      for (int64_t i = 0; i < n; ++i)
        expect(bits(contiguous.out.get(at * n + i)) == bits(expected.out.get(i)), "neighbours");
      for (const Shape &stride :
           {Shape{4 * n, n, 1}, Shape{n, 9 * n, 1}, Shape{1, 9, 36}, Shape{10 * n, 2 * n + 1, 2}})
        for (int threads : kThreads) {
          Tensor x = laid_out(many, stride);
          Result r = rms_norm(x, nullptr, &weight, threads, stride);
          expect_same(r.out, contiguous.out, "strides and threads");
          expect_same(r.rstd, contiguous.rstd, "strides and threads, rstd");
        }
    }
}

// out may be x and residual_out may be residual; fused equals an addition and then rms_norm.
void test_in_place_and_fused() {
  Values values(3);
  for (int32_t dtype : kDtypes) {
    Tensor x = values.tensor(dtype, {11, 130}), residual = values.tensor(dtype, {11, 130});
    Tensor weight = values.tensor(dtype, {130}), sum(dtype, {11, 130});
    for (int64_t i = 0; i < x.count(); ++i) sum.set(i, x.get(i) + residual.get(i));
    Result fused = rms_norm(x, &residual, &weight, 2);
    expect_same(rms_norm(sum, nullptr, &weight, 2).out, fused.out, "add, then rms_norm");
    const bi_tensor vx = x.view(), vr = residual.view(), vw = weight.view();
    expect_ok(bi_rms_norm(&vx, &vr, &vw, 1e-6, &vx, &vr, nullptr, 2), "bi_rms_norm in place");
    expect_same(x, fused.out, "in place");
    expect_same(residual, sum, "residual in place");
  }
}

void test_errors() {
  Tensor x(BI_FLOAT32, {2, 3}), w(BI_FLOAT32, {4}), narrow(BI_BFLOAT16, {3});
  bi_tensor vx = x.view(), vw = w.view(), vn = narrow.view();
  auto call = [&](const bi_tensor *residual, const bi_tensor *weight, double eps,
                  const bi_tensor *rstd) {
    return bi_rms_norm(&vx, residual, weight, eps, &vx, nullptr, rstd, 1);
  };
  expect_error(call(&vx, nullptr, 1e-6, nullptr), BI_INVALID_ARGUMENT, "residual");
  expect_error(call(nullptr, &vw, 1e-6, nullptr), BI_INVALID_ARGUMENT, "weight:");
  expect_error(call(nullptr, &vn, 1e-6, nullptr), BI_UNSUPPORTED_DTYPE, "weight:");
  expect_error(call(nullptr, nullptr, -1.0, nullptr), BI_INVALID_ARGUMENT, "eps:");
  expect_error(call(nullptr, nullptr, 1e-6, &vx), BI_INVALID_ARGUMENT, "rstd:");
}

void tests() {
  test_contract();
  test_layouts_neighbours_threads();
  test_in_place_and_fused();
  test_errors();
}

}  // namespace

int main() { return finish(tests); }
