// Rows as tables for people and as CSV, with the same columns.
#pragma once

#include "common/compare/row.hpp"

#include <string>
#include <vector>

namespace flash {

/// A table for each problem, pass and device, in the order of their first rows: a heading, which also says what all rows share, a
/// line per row, and what went wrong below it. A step's idea stands below its first row if the table is not wide enough for a column.
/// Other columns that make a table wider than `width` are left out, and named at the end.
std::string comparison_tables(const std::vector<Row>&, std::size_t width);

/// A header line and a line per row; empty cells where a row has no such value. Quoted as RFC 4180 says.
std::string csv_text(const std::vector<Row>&);

}  // namespace flash
