// What chapter 03 predicts: as in chapter 01, but for how often the softmax reads S.
#pragma once

#include "01_naive/predicted.hpp"

namespace flash::online_softmax {

inline Prediction predicted(const Variant& v, const FullProblem& p, Pass, const TileChoice&, const DeviceLimits&) {
  return v.name == std::string_view("one_pass") ? naive::predicted_forward(p, 2, /*warp_per_row=*/true) : Prediction{};
}

}  // namespace flash::online_softmax
