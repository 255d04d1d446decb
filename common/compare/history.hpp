// What the runs so far tell about those to come: how long they will take, and which need not be tried.
#pragma once

#include "common/compare/plan.hpp"

#include <optional>
#include <string>
#include <vector>

namespace flash {

/// "35 s", "12 min", "3.5 h".
std::string duration_text(double seconds);

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

}  // namespace flash
