// Vector clocks: up to which time of each thread something is known.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace flash::machine {

using Clock = std::vector<std::uint32_t>;                      ///< [thread]; empty: nothing
using BlockClocks = std::unordered_map<std::uint32_t, Clock>;  ///< [block]

/// What a token passes on: times of this block's threads, and of earlier blocks'.
struct Knowledge {
  Clock here;
  BlockClocks earlier;
  std::vector<const void*> drawn;  ///< targets of atomics, which make an order once a fence follows
};

inline void join(Clock& into, const Clock& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (std::size_t u = 0; u < from.size(); ++u) into[u] = std::max(into[u], from[u]);
}
inline void join(BlockClocks& into, const BlockClocks& from) {
  for (const auto& [block, clock] : from) join(into[block], clock);
}
inline void join(std::vector<const void*>& into, const std::vector<const void*>& from) {
  for (const void* each : from) {
    if (std::find(into.begin(), into.end(), each) == into.end()) into.push_back(each);
  }
}
inline void join(Knowledge& into, const Knowledge& from) {
  join(into.here, from.here);
  join(into.earlier, from.earlier);
  join(into.drawn, from.drawn);
}

}  // namespace flash::machine
