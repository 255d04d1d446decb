// What watched launches found: accesses that race, memory that was read though no thread had written it, and memory that none has written.
#pragma once

#include "common/machine/cpu/types.hpp"
#include "common/machine/rules.hpp"

#include <cstdint>
#include <set>
#include <string>
#include <tuple>
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
  std::string first_line, second_line;  ///< "04_fa1_forward/4_tiled.cuh:37"
  std::string called_from;  ///< ", called from 06_fa2_forward/1_loop_order.cuh:90" if a line lies in a helper's file
  bool first_writes = false, second_writes = false;
  ThreadName first, second;
  bool block_atomics = false;    ///< one of them is an atomic of its block, such as atomicAdd_block()
  RuleId remark = RuleId::race;  ///< among Findings::remarks: read_before_atomic, same_value or ticket
  std::uint64_t launch = 0;      ///< its number among those watched

  RuleId rule() const {
    if (remark != RuleId::race) return remark;
    return first_writes && second_writes ? RuleId::write_race : RuleId::race;
  }
};

/// A thread reads bytes that hold no value: of shared memory, if no thread of its block has written them; of poisoned global memory, if no
/// launch has. NaN here, anything on a GPU.
struct UnwrittenRead {
  std::string kernel, line, called_from;
  ThreadName reader;
  bool shared = true;
  std::uintptr_t address = 0;
  std::uint64_t launch = 0;  ///< its number among those watched
  bool early = false;        ///< perhaps written: by the previous kernel, for which an early one has not waited
  bool late = false;         ///< perhaps not yet written: only atomics of threads with which no order exists have done so
};

/// Threads of a block that wait at different barriers, or at one that others have left behind.
struct ApartBarriers {
  std::string kernel;
  std::vector<std::string> lines;
  std::string sentence;
  bool operator<(const ApartBarriers& b) const {  // not <=>, which strings of emscripten's library lack
    return std::tie(kernel, lines, sentence) < std::tie(b.kernel, b.lines, b.sentence);
  }
};

/// Bank conflicts of plain arrays in shared memory; those of views are among the Counters.
struct ArrayConflicts {
  std::string kernel, line;
  std::uint64_t count = 0;
};

struct Findings {
  std::vector<Race> races;           ///< one for each pair of lines
  std::vector<Race> remarks;         ///< with Options::lenient: those that are harmless in practice
  std::set<ApartBarriers> barriers;  ///< with Options::lenient
  std::vector<UnwrittenRead> unwritten;
  std::vector<ArrayConflicts> conflicts;  ///< one for each line that has some
  std::uint64_t accesses = 0;             ///< looked at
  bool complete = true;                   ///< false: there were more accesses than are looked at
  std::string last_write;                 ///< of the followed address: "04_fa1_forward/4_tiled.cuh:99, thread (3,0,0) of ..."
};

/// Of the launches with Options::watch since the last reset.
Findings findings();
void reset_findings();
/// The launches from now on tell who writes to this address of global memory (Findings::last_write). Null: none. A reset keeps it.
void follow_writes(const void*);

/// Has a launch with Options::watch written these bytes of global memory since the last reset?
bool was_written(const void*, std::size_t bytes);
/// The last such launch that wrote near there, "kernel softmax, 1 x 2 x 1 blocks of 128 x 1 x 1 threads,"; "" if none did.
std::string writer_near(const void*);

/// Can it be known? False in builds under a sanitizer, which watches by its own means.
bool can_watch();

/// "04_fa1_forward/4_tiled.cuh:37 writes and 04_fa1_forward/4_tiled.cuh:54 reads the same shared memory ...", one line.
std::string sentence(const Race&);
std::string sentence(const UnwrittenRead&);

}  // namespace simt
}  // namespace flash
