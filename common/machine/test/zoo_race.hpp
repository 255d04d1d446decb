// The race cases: a bug's two lines must be named, and nothing said of its twin.
#pragma once

#include <string>
#include <vector>

namespace flash {

/// Global memory of all cases: room for a few numbers of each of 128 threads.
struct RaceMemory {
  alignas(16) float in[1024] = {};
  alignas(16) float out[1024] = {};
  int turn = 0;
};

struct RaceCase {
  std::string name;
  bool is_bug;  ///< else its twin, which is right
};

std::vector<RaceCase> race_cases();
/// With Options::watch, which stays set.
void run_race_case(const RaceCase&);

}  // namespace flash
