// How far a comparison is, for a person who waits and for a log.
#pragma once

#include "common/compare/plan.hpp"

#include <chrono>
#include <functional>
#include <optional>
#include <ostream>

namespace flash {

class Progress {
 public:
  enum class Look {
    plain,  ///< one problem: a line for each run
    lines,  ///< a sweep: a line for each run, with its number and an estimate of the time left
    live    ///< a sweep on a terminal: one line that changes; what did not go well stays above it
  };

  /// `columns`: of the terminal now; 0 if not known.
  Progress(std::ostream& out, Look look, std::size_t runs, std::function<int()> columns = {})
      : out_(out), look_(look), runs_(runs), columns_(std::move(columns)) {}

  /// `done`: runs that need not be waited for any more. `seconds_left`: for this one and all that follow.
  void start(const Run&, std::size_t done, std::optional<double> seconds_left);

  /// Draws the live line again, once a second.
  void tick();

  void end(const Row&);

  /// After the last run: takes the live line away.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  void draw();
  std::string left() const;

  std::ostream& out_;
  Look look_;
  std::size_t runs_, done_ = 0;
  std::function<int()> columns_;
  const Run* run_ = nullptr;
  const Case* task_ = nullptr;  ///< of the heading printed last
  std::optional<double> seconds_left_;
  Clock::time_point started_, drawn_;
};

/// The columns of the terminal that stderr is; 0 if it is none that can change a line.
int terminal_columns();

}  // namespace flash
