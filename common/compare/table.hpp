// Rows as a table for people and as CSV.
#pragma once

#include "common/attention/variant.hpp"
#include "common/compare/row.hpp"

#include <string>
#include <vector>

namespace flash {

/// One table: a heading with the problem and the device, a line per row, and what went wrong below it. All rows are of one pass
/// and one problem.
std::string comparison_table(const std::vector<Row>&, const Problem&, Pass, Backend);

/// A header line and a line per row; empty cells where a row has no such value. Quoted as RFC 4180 says.
std::string csv_text(const std::vector<Row>&);

}  // namespace flash
