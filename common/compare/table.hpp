// Rows as tables.
#pragma once

#include "common/compare/row.hpp"

#include <string>
#include <vector>

namespace flash {

/// A table for each problem, pass and device, in the order of their first rows: a heading, a line per row, and what went wrong. Without
/// `wide`, the columns that fit a page.
std::string comparison_tables(const std::vector<Row>&, bool wide);

}  // namespace flash
