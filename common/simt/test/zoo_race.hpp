// The race cases, for the program that runs one and the test that runs them all.
#pragma once

#include <string>
#include <vector>

namespace flash {

struct RaceCase {
  std::string name;
  bool is_bug;  ///< else a twin, which is right
};

std::vector<RaceCase> race_cases();

/// Runs one, with or without Options::watch; false if there is none of that name.
bool run_race_case(const std::string& name, bool watch = false);

}  // namespace flash
