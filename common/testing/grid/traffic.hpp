// Predicted HBM bytes beside the simulator's exact count.
#pragma once

#include "common/attention/variant.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace flash::grid {

/// Elements read and written of one tensor.
struct Elements {
  std::int64_t read = 0, written = 0;
};

/// Per tensor name. The bytes of an element follow from its type.
using Prediction = std::map<std::string, Elements>;

/// Counts one run of the pass alone on the simulator and reports to doctest each tensor whose bytes differ from the prediction,
/// or that the prediction lacks.
void check_traffic(const Variant&, const Problem&, Pass, const Prediction&);

}  // namespace flash::grid
