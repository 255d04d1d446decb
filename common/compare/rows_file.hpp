// Files of rows: JSON Lines. A run's row is appended as the run ends, so that an interrupted sweep leaves its rows.
#pragma once

#include "common/compare/row.hpp"

#include <fstream>
#include <string>
#include <vector>

namespace flash {

/// The rows of a file; of those with the same key the latest, in the order of first appearance. UsageError with the line if the file holds
/// anything else than rows.
std::vector<Row> read_rows(const std::string& file);

class RowsFile {
 public:
  /// UsageError if the file cannot be written or holds anything else than rows.
  explicit RowsFile(const std::string& file);

  const std::vector<Row>& rows() const { return rows_; }  ///< from before

  void append(const Row&);

 private:
  void check() const;

  std::string name_;
  std::vector<Row> rows_;
  std::ofstream stream_;
};

}  // namespace flash
