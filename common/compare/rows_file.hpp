// Files of rows: JSON Lines. A run's row is appended as the run ends, so that an interrupted sweep leaves its rows.
#pragma once

#include "common/compare/row.hpp"

#include <string>
#include <vector>

namespace flash {

/// The rows of a file, of those with the same key the latest, in the order of first appearance; none if there is no such file. UsageError with the
/// line if it holds anything else than rows.
std::vector<Row> read_rows(const std::string& file);

/// UsageError if the file cannot be written.
void append(const std::string& file, const std::string& lines);

}  // namespace flash
