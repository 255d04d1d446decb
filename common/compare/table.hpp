// Rows as tables.
#pragma once

#include "common/compare/row.hpp"

#include <string>
#include <vector>

namespace flash {

/// A table for each problem, pass and device, in the order of their first rows: a heading, which also says what all rows share, a
/// line per row, and what went wrong below it. A step's idea stands below its first row if the table is not wide enough for a column.
/// Other columns that make a table wider than `width` are left out, and named at the end.
std::string comparison_tables(const std::vector<Row>&, std::size_t width);

}  // namespace flash
