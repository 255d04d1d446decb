// The blocks of a cooperative launch. Each has a worker and an operating-system thread; one at a time runs, until it waits for others or ends.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

namespace flash::machine {

class RaceDetector;

class Grid {
 public:
  explicit Grid(std::size_t blocks) : states_(blocks, State::ready) {}

  void begin(std::uint64_t block) { wait(block); }
  void end(std::uint64_t block, std::exception_ptr failure);
  bool is_last() const;  ///< all but the running block have ended
  /// grid.sync(); false: other blocks have ended without it.
  bool meet(std::uint64_t block);
  /// Lets the others go on.
  void yield(std::uint64_t block);

  std::shared_ptr<RaceDetector> race_detector;  ///< of all blocks; null: nobody looks
  std::exception_ptr failure;                   ///< the first, for which others may have failed too

 private:
  enum class State : std::uint8_t { ready, at_sync, ended };
  void wait(std::uint64_t block);
  void pass_on();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<State> states_;
  std::uint64_t turn_ = 0;
  bool failed_ = false;
};

}  // namespace flash::machine
