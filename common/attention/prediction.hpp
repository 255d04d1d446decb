// What a pass should do by the closed formulas of the chapters. Tests compare each number with the simulator's count.
#pragma once

#include "common/attention/problem.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace flash {

/// Of one tensor or workspace.
struct Moved {
  std::int64_t read = 0, written = 0;
  std::optional<std::int64_t> sectors{};  ///< unset: warps access it along its rows, 32 bytes per sector
};

/// By the name of the tensor.
using MovedTensors = std::map<std::string, Moved>;

/// Variant::predict gives the traffic in elements. An unset number has no formula.
struct Prediction {
  MovedTensors tensors{};  ///< empty: nothing is predicted
  std::optional<std::int64_t> sectors{}, barriers{}, warp_operations{};
};

/// Of all tensors, without sectors.
inline Moved sum_of(const MovedTensors& tensors) {
  Moved sum;
  for (const auto& [name, moved] : tensors) sum.read += moved.read, sum.written += moved.written;
  return sum;
}

/// (2.9)  Of fp32 elements, where the accesses of a warp begin and end with a sector.
inline std::optional<std::int64_t> sectors_of(const MovedTensors& tensors, const Problem& p) {
  if (p.Nk % 8 != 0 || p.d % 8 != 0 || p.Nq % 8 != 0 || p.bias != BiasKind::none) return {};
  std::int64_t sum = 0;
  for (const auto& [name, moved] : tensors) sum += moved.sectors.value_or((moved.read + moved.written) / 8);
  return sum;
}

}  // namespace flash
