// What watched launches found: accesses that race, and shared memory that was read though no thread had written it.
#pragma once

#include "common/simt/types.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace flash {
inline namespace simt {

/// A CUDA thread of a launch.
struct ThreadName {
  uint3 block, thread;
};

/// Two threads access the same memory, at least one of them writes, and nothing orders them.
struct Race {
  std::string kernel;
  bool shared = true;                   ///< shared memory; else global
  bool one_block = true;                ///< both threads are of one block
  std::string first_line, second_line;  ///< "04_fa1_forward/kernel.cuh:37"
  bool first_writes = false, second_writes = false;
  ThreadName first, second;
};

/// A thread reads bytes of shared memory that no thread of its block has written: NaN here, anything on a GPU.
struct UnwrittenRead {
  std::string kernel, line;
  ThreadName reader;
};

struct Findings {
  std::vector<Race> races;  ///< one for each pair of lines
  std::vector<UnwrittenRead> unwritten;
  std::uint64_t accesses = 0;  ///< looked at
  bool complete = true;        ///< false: there were more accesses than are looked at
};

/// Of the launches with Options::watch since the last reset.
Findings findings();
void reset_findings();

/// Can it be known? False in builds under a sanitizer, which watches by its own means.
bool can_watch();

/// "04_fa1_forward/kernel.cuh:37 writes and 04_fa1_forward/kernel.cuh:54 reads the same shared memory ...", one line.
std::string sentence(const Race&);
std::string sentence(const UnwrittenRead&);

}  // namespace simt
}  // namespace flash
