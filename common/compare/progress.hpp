// How far a comparison is, for a person who waits and for a log: how long its runs will take, and how that is shown.
#pragma once

#include "common/compare/plan.hpp"

#include <chrono>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace flash {

/// "35 s", "12 min", "3.5 h".
std::string duration_text(double seconds);

/// What the runs so far tell about those to come: how long they will take, and which need not be tried.
class History {
 public:
  explicit History(std::chrono::duration<double> time_limit) : limit_(time_limit.count()) {}

  /// A run that ended; its seconds are the row's "wall_s", if it has them.
  void add(const Run&, const Row&);

  /// The simulator's counts of a GPU run, of a problem of `work` FLOPs, took so long.
  void add_counting(const Run& run, double work, double seconds) { counts_.push_back({run, work, seconds}); }

  /// Expected seconds; absent until something has run. For a variant that never ran, those of the others.
  std::optional<double> seconds(const Run&) const;
  std::optional<double> counting_seconds(const Run& run, double work) const { return predict(counts_, run, work); }

  double limit() const { return limit_; }  ///< of each run, in seconds

  struct Skip {
    bool too_long = false;  ///< else there is no room
    std::string message;
  };

  /// Why the run is not worth starting: it would exceed the time limit, or a smaller problem of the same variant, pass and dtype
  /// did, or found no room.
  std::optional<Skip> reason_to_skip(const Run&) const;

 private:
  struct Measured {
    Run run;
    double work, seconds;
  };

  std::optional<double> predict(const std::vector<Measured>&, const Run&, double work) const;

  double limit_;
  std::vector<Measured> runs_, counts_;
  std::vector<std::pair<Run, Row>> failed_;
};

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
  Run run_;
  const Case* task_ = nullptr;  ///< of the heading printed last
  std::optional<double> seconds_left_;
  Clock::time_point started_, drawn_;
};

/// The columns of the terminal that stderr is; 0 if it is none that can change a line.
int terminal_columns();

}  // namespace flash
