// The turns of a run: recorded in one order of the threads, and taken again, all or some of them, in a run that is in forward order otherwise.
#pragma once

#include "common/simt/site.hpp"
#include "common/simt/types.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace flash {
inline namespace simt {

/// Of several threads, or asynchronous copies, one comes next.
struct Turn {
  std::uint64_t block = 0;   ///< counted through all launches
  std::uint64_t choice = 0;  ///< of this block
  int taken = 0;

  bool comes_before(const Turn& other) const { return block != other.block ? block < other.block : choice < other.choice; }
};

/// A turn that forward order would have given to another thread.
struct Switch {
  Turn turn;
  std::string kernel;
  uint3 block, thread, usual;
  Site from, usual_from;  ///< where they waited; no line: nowhere yet
  bool copies = false;    ///< not the threads are switched, but the asynchronous work that they have issued
};

/// For Options::schedule, and for one run: it counts blocks, so that they must come one after the other.
class Schedule {
 public:
  Schedule() = default;  ///< records
  explicit Schedule(std::vector<Turn> turns) : records_(false), turns_(std::move(turns)) {}

  // For the simulator.
  void start_block() { ++block_, choice_ = 0; }
  int take(int usual);
  void add(Switch);

  const std::vector<Turn>& turns() const { return turns_; }
  const std::vector<Switch>& switches() const { return switches_; }  ///< none while it records

 private:
  bool records_ = true;
  std::vector<Turn> turns_;
  std::size_t next_ = 0;
  std::uint64_t block_ = 0, choice_ = 0;
  std::vector<Switch> switches_;
};

/// "kernel scores, block (0,0,0): thread (1,0,0) goes on from kernel.cuh:37 before thread (0,0,0)"
std::string sentence(const Switch&);

}  // namespace simt
}  // namespace flash
