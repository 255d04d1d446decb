// The file of --save: rows go to FILE.partial as they come, and to FILE when all are there, so that a sweep can be interrupted.
#pragma once

#include "common/compare/plan.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace flash {

/// The rows of a file that compare --save wrote. UsageError if it cannot be read or holds anything else.
std::vector<Row> read_rows(const std::string& file);

struct KeptRows {
  std::vector<std::optional<Row>> of_plan;  ///< for each run of the plan its row, if there is one
  std::vector<Row> others;                  ///< rows of runs that the plan does not have: they stay in the file

  /// The rows of the plan, in its order.
  std::vector<Row> done() const;
};

/// Sorts earlier rows by the runs of a plan. A run's row holds if it is of the same problem, device, kernel sources and options and
/// its verdict would be the same again; a run that was skipped is thought about anew.
KeptRows rows_that_hold(const std::vector<Row>& earlier, const Plan&, const CompareOptions&);

class SaveFile {
 public:
  /// "": saves nothing. `go_on`: the command that goes on after an interruption.
  SaveFile(std::string file, std::string go_on);

  /// Before anything runs: UsageError if FILE cannot be written or holds something else than rows, or if FILE.partial exists and is
  /// not to be resumed. With `resume` the rows of FILE.partial, else of FILE, else none.
  std::vector<Row> start(bool resume);

  /// UsageError if rows would be lost that a run on this device cannot make again: those of a GPU on a CPU, and those of peers without them; or
  /// if they are of another kind, of --tune or not.
  void check_replaced(const Plan&, bool tune) const;

  /// Puts the rows into FILE.partial; from then on a signal that ends the program tells how to go on after `done` of
  /// `all` runs, each round of one counted.
  void write(const KeptRows&, std::size_t done, std::size_t all) const;

  /// Puts the rows into FILE, and says so on stderr.
  void finish(const KeptRows&) const;

 private:
  std::string file_, partial_, go_on_;
  std::vector<Row> replaced_;
};

}  // namespace flash
