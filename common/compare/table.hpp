// Rows as tables.
#pragma once

#include "common/compare/row.hpp"

#include <string>
#include <vector>

namespace flash {

/// A table for each problem, pass and device, in the order of their first rows: a heading, a line per row, and what went wrong. Columns that
/// make a table wider than `width` are left out, and named at the end.
std::string comparison_tables(const std::vector<Row>&, std::size_t width);

}  // namespace flash
