#include "common/machine/engine/grid.hpp"

#include "common/machine/engine/race_detector.hpp"
#include "common/machine/engine/stall_timer.hpp"

#include <algorithm>
#include <utility>

namespace flash::machine {

void Grid::wait(std::uint64_t block) {
  std::unique_lock lock(mutex_);
  TimedThread::rest(true);
  changed_.wait(lock, [&] { return turn_ == block; });
  TimedThread::rest(false);
  if (race_detector != nullptr) race_detector->switch_to(static_cast<std::uint32_t>(block));
}

/// The turn goes to the next block that can go on.
void Grid::pass_on() {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(states_, State::ready) == states_.end()) {  // all wait, or only some are left that do
    failed_ = std::ranges::find(states_, State::ended) != states_.end();
    if (!failed_ && race_detector != nullptr) race_detector->grid_barrier();
    std::ranges::replace(states_, State::at_sync, State::ready);
    turn_ = states_.size() - 1;
  }
  for (std::size_t tried = 0; tried < states_.size(); ++tried) {
    turn_ = (turn_ + 1) % states_.size();
    if (states_[turn_] == State::ready) break;
  }
  changed_.notify_all();
}

void Grid::end(std::uint64_t block, std::exception_ptr why) {
  if (failure == nullptr) failure = std::move(why);
  states_[block] = State::ended;
  pass_on();
}

bool Grid::is_last() const { return std::ranges::count(states_, State::ended) + 1 == std::ssize(states_); }

bool Grid::meet(std::uint64_t block) {
  states_[block] = State::at_sync;
  pass_on();
  wait(block);
  return !failed_;
}

void Grid::yield(std::uint64_t block) {
  pass_on();
  wait(block);
}

}  // namespace flash::machine
