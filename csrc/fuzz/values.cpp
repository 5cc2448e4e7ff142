// SPDX-License-Identifier: Apache-2.0
#include "values.h"

namespace bi_fuzz {

Values::Values(Random &random) : random_(random) {
  kind_ = random.one_of({Kind::ordinary, Kind::ordinary, Kind::wide, Kind::huge, Kind::small,
                         Kind::counts, Kind::any});
  if (random.percent(50))
    for (const double special : {HUGE_VAL, -HUGE_VAL, static_cast<double>(NAN), 0.0, -0.0})
      if (random.percent(35)) specials_.push_back(special);
  one_in_ = random.one_of({1, 2, 5, 30, 300});
}

double Values::next(const Format &format) {
  if (!specials_.empty() && random_.below(one_in_) == 0)
    return specials_[static_cast<size_t>(random_.below(static_cast<int64_t>(specials_.size())))];
  double x = 2.0 * random_.symmetric();
  switch (kind_) {
    case Kind::ordinary:
      break;
    case Kind::wide:
      x = std::ldexp(x, static_cast<int>(random_.between(-20, 12)));
      break;
    case Kind::huge:  // products and sums leave the range
      x = std::ldexp(x, static_cast<int>(random_.between(format.largest / 2 - 2, format.largest)));
      break;
    case Kind::small:  // products and squares vanish
      x = std::ldexp(x, static_cast<int>(random_.between(format.smallest, format.smallest / 2)));
      break;
    case Kind::counts:
      x = static_cast<double>(random_.between(-3, 3));
      break;
    case Kind::any:
      x = std::ldexp(x, static_cast<int>(random_.between(format.smallest, format.largest)));
      break;
  }
  return round_to(format, x);
}

void Values::fill(Tensor &tensor) {
  const int32_t dtype = tensor.dtype();
  for (int64_t i = 0; i < tensor.count(); ++i) {
    if (is_integer(dtype))
      tensor.set_integer(i, static_cast<int64_t>(random_.next()) >> random_.below(64));
    else
      tensor.set(i, next(format_of(dtype)));
  }
}

}  // namespace bi_fuzz
