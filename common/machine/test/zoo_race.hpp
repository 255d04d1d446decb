// The race cases, for the program that runs one and the test that runs them all.
#pragma once

#include <string>
#include <vector>

namespace flash {

/// Global memory of all cases: room for a few numbers of each of 128 threads.
struct RaceMemory {
  alignas(16) float in[1024] = {};
  alignas(16) float out[1024] = {};
  unsigned arrived = 0;
  int turn = 0;
};

struct RaceCase {
  std::string name;
  bool is_bug;  ///< else a twin, which is right
  std::string file = "zoo_race.cpp";
};
struct RaceEntry {
  RaceCase named;
  void (*kernel)(RaceMemory*);  ///< null: between_blocks
  unsigned blocks, threads;
};

/// Those of Hopper's instructions.
std::vector<RaceEntry> hopper_race_entries();

std::vector<RaceCase> race_cases();

/// Runs one, with or without Options::watch; false if there is none of that name.
bool run_race_case(const std::string& name, bool watch = false);

}  // namespace flash
