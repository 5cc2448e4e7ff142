// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include <climits>
#include <utility>

namespace bi_fuzz {
namespace {

// Room for a rank that is one too many.
void pad(Shape *extents) { extents->push_back(1); }

void run_backwards(int64_t tasks, int, bi_task task, void *arg) {
  for (int64_t i = tasks - 1; i >= 0; --i) task(arg, i);
}

}  // namespace

Argument::Argument(std::string argument, const Tensor &tensor)
    : name(std::move(argument)),
      shape(tensor.shape()),
      stride(tensor.stride()),
      view(tensor.view()) {
  pad(&shape);
  pad(&stride);
  view.shape = shape.data();
  view.stride = stride.data();
}

Argument::Argument(Argument &&other) noexcept = default;

Spoilt spoil(Random &random, std::vector<Argument> &arguments, int *threads) {
  std::vector<std::string> all;
  for (const Argument &argument : arguments) all.push_back(argument.name);
  if (random.percent(10)) {
    *threads = random.one_of({0, -1, INT_MIN});
    return {"threads of " + std::to_string(*threads), {"threads"}};
  }
  Argument &a = arguments[static_cast<size_t>(random.below(static_cast<int64_t>(all.size())))];
  bi_tensor &view = a.view;
  const std::vector<std::string> own = {a.name};
  bool any = true;
  for (int d = 0; d < view.ndim; ++d) any &= a.shape[static_cast<size_t>(d)] > 0;
  // An extent at random.
  const auto d = static_cast<size_t>(view.ndim > 0 ? random.below(view.ndim) : 0);
  const std::string at = " of " + a.name;
  switch (random.below(11)) {
    case 0:
      if (!a.required) break;
      a.present = false;
      return {a.name + " of NULL", own};
    case 1:
      view.ndim = random.one_of<int32_t>({-1, 17, INT32_MIN, INT32_MAX});
      return {"ndim" + at + " " + std::to_string(view.ndim), own};
    case 2:
      if (view.ndim == 0) break;
      (random.percent(50) ? view.shape : view.stride) = nullptr;
      return {"shape or stride" + at + " NULL", own};
    case 3:
      if (view.ndim == 0) break;
      a.shape[d] = random.one_of<int64_t>({-1, INT64_MIN, -(int64_t{1} << 32)});
      return {"negative extent" + at, own};
    case 4:
      if (!any) break;
      view.data = nullptr;
      return {"data" + at + " NULL", own};
    case 5:
      view.dtype = random.one_of<int32_t>({99, -1, 5, INT32_MIN});
      return {"dtype" + at + " " + std::to_string(view.dtype), own};
    case 6:
      if (a.integers) break;
      view.dtype = random.one_of<int32_t>({BI_INT32, BI_INT64});
      return {"integers in " + a.name, own};
    case 7:  // more elements than 64 bits count
      if (view.ndim < 2 || !any) break;
      a.shape[d] = INT64_MAX;
      a.shape[d > 0 ? d - 1 : 1] = int64_t{1} << 40;
      return {"absurd extents" + at, own};
    case 8:  // and farther than 64 bits reach
      if (!any || a.shape[d] < 2 || view.ndim == 0) break;
      a.stride[d] = random.one_of<int64_t>({INT64_MAX, INT64_MIN, INT64_MAX / 2, INT64_MIN / 2});
      return {"absurd stride" + at, own};
    case 9:
      if (!a.tied || view.ndim == 0) break;
      a.shape[d] += a.shape[d] > 0 && random.percent(50) ? -1 : 1;
      return {"another extent" + at, all};
    default:
      if (view.ndim == 0 && a.name == "x") break;
      view.ndim += random.percent(50) && view.ndim > 0 ? -1 : 1;
      return {"another rank" + at, all};
  }
  return {};
}

int random_threads(Random &random) {
  if (!random.percent(20)) return 1;
  bi_set_run(random.percent(50) ? &run_backwards : nullptr);
  return static_cast<int>(random.one_of({2, 3, 8}));
}

}  // namespace bi_fuzz
