// What a pass moves, tensor by tensor: predicted by the closed formulas of the chapters, and held to what the simulator counts.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace flash {

/// Of one tensor or workspace.
struct Moved {
  std::int64_t read = 0, written = 0;
  bool rows_apart =
      false;  ///< neighbouring threads work rows apart, as the chapter says: a report makes no remark on it. Not compared
  friend bool operator==(const Moved& a, const Moved& b) { return a.read == b.read && a.written == b.written; }
};

/// By name. Variant::predict gives elements; empty: there is no formula.
using Prediction = std::map<std::string, Moved>;

/// Of all tensors.
inline Moved sum_of(const Prediction& prediction) {
  Moved sum;
  for (const auto& [name, moved] : prediction) sum = {sum.read + moved.read, sum.written + moved.written};
  return sum;
}

}  // namespace flash
