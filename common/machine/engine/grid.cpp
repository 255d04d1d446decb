#include "common/machine/engine/grid.hpp"

#include "common/machine/engine/race_detector.hpp"

#include <algorithm>

namespace flash::machine {

bool Grid::begin_another() {
  if (next_block_ >= blocks_ || workers_.size() >= resident_) return false;
  const std::size_t worker = workers_.size();
  Turn& turn = workers_.emplace_back();
  if (worker > 0 && !start_(worker)) {
    workers_.pop_back();
    resident_ = worker;
    return false;
  }
  running_ = worker;
  turn.comes.release();
  return true;
}

void Grid::begin(std::size_t worker) { wait(workers_[worker], worker); }

void Grid::wait(Turn& own, std::size_t worker) {
  own.comes.acquire();
  if (race_detector != nullptr) race_detector->switch_to(worker);
}

/// The turn goes to a block that has not begun, else to the next that can go on.
void Grid::pass_on() {
  if (begin_another()) return;
  if (std::ranges::none_of(workers_, [](const Turn& turn) { return turn.state == State::ready; })) {
    failed_ = ended_ > 0 || failure != nullptr;
    if (!failed_ && race_detector != nullptr) race_detector->grid_barrier();
    for (Turn& turn : workers_) {
      if (turn.state == State::at_sync) turn.state = State::ready;
    }
    running_ = workers_.size() - 1;
  }
  for (std::size_t tried = 0; tried < workers_.size(); ++tried) {
    running_ = (running_ + 1) % workers_.size();
    if (workers_[running_].state != State::ready) continue;
    workers_[running_].comes.release();
    break;
  }
}

void Grid::end(std::exception_ptr why) {
  if (failure == nullptr) failure = std::move(why);
  if (failure != nullptr) next_block_ = blocks_;
  workers_[running_].state = State::ended;
  ++moves_;
  pass_on();
}

bool Grid::is_last() const {
  const auto goes_on = [](const Turn& turn) { return turn.state != State::ended; };
  return std::count_if(workers_.begin(), workers_.end(), goes_on) == 1;
}

bool Grid::meet() {
  const std::size_t self = running_;
  Turn& own = workers_[self];
  own.state = State::at_sync;
  ++moves_;
  pass_on();
  wait(own, self);
  return !failed_;
}

bool Grid::yield(bool moved) {
  moves_ += moved;
  const std::uint64_t before = moves_;
  const std::size_t self = running_, workers = workers_.size();
  Turn& own = workers_[self];
  pass_on();
  wait(own, self);
  return moves_ != before || workers_.size() != workers;
}

std::string Grid::without_room() const {
  if (next_block_ >= blocks_) return "";
  return ", and of the " + std::to_string(blocks_) + " blocks only " + std::to_string(resident_) +
         " are resident at once: a barrier of the whole grid needs a cooperative launch";
}

}  // namespace flash::machine
