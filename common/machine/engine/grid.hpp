// The blocks of a launch that are resident at once. Each has a worker and an operating-system thread; one at a time runs, until it waits for
// others or ends. A worker whose block has ended takes the next one, and a block that waits for others lets a further one begin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <semaphore>
#include <string>

namespace flash::machine {

class RaceDetector;

/// Of a launch; the calls are the running worker's. Workers are numbered as they begin.
class Grid {
 public:
  /// So many blocks, of which at most `resident` run at once. start(worker) makes another worker's thread, which calls begin(), if it can.
  Grid(std::uint64_t blocks, std::size_t resident, std::function<bool(std::size_t)> start)
      : blocks_(blocks), resident_(resident), start_(std::move(start)) {
    begin_another();
  }

  void begin(std::size_t worker);
  void end(std::exception_ptr failure);
  /// The block that the worker runs next; at least the grid's size: there is none.
  std::uint64_t next_block() { return next_block_++; }
  void block_ends() { ++moves_, ++ended_; }
  bool is_last() const;  ///< all but the running worker have ended
  /// grid.sync(); false: other blocks have ended without it.
  bool meet();
  /// Lets the others go on, of whom one may end the wait of the running block, which has itself `moved` since the last time. False: nobody has.
  bool yield(bool moved);
  std::size_t workers() const { return workers_.size(); }
  /// For messages: ", of 100 blocks only 8 run at once ...", if there are blocks for which there is no room.
  std::string without_room() const;

  std::shared_ptr<RaceDetector> race_detector;  ///< of all blocks; null: nobody looks
  std::exception_ptr failure;                   ///< the first, for which others may have failed too

 private:
  enum class State : std::uint8_t { ready, at_sync, ended };
  struct Turn {
    State state = State::ready;
    std::binary_semaphore comes{0};
  };
  bool begin_another();
  void pass_on();
  void wait(Turn& own, std::size_t worker);

  const std::uint64_t blocks_;
  std::size_t resident_;
  const std::function<bool(std::size_t)> start_;
  std::deque<Turn> workers_;
  std::size_t running_ = 0;
  std::uint64_t next_block_ = 0, ended_ = 0, moves_ = 0;
  bool failed_ = false;
};

}  // namespace flash::machine
