// Rows as tables for people and as CSV, with the same columns.
#pragma once

#include "common/compare/row.hpp"

#include <string>
#include <vector>

namespace flash {

struct Column {
  std::string path;        ///< of the value in a row, and its name in CSV; "": not there
  std::string title = "";  ///< in tables; "": not there
  int gpu = -1, cpu = -1;  ///< in a table of such rows: where there is no room, the highest goes first; 0 stays; -1: not there
  std::string (*figure)(double) = nullptr;    ///< how a table writes it; null: it is text
  std::string (*text)(const Row&) = nullptr;  ///< what a table has in place of a value

  int rank(Backend backend) const { return backend == Backend::gpu ? gpu : cpu; }

  /// "-" if the row has no such value.
  std::string cell(const Row&) const;
};

/// All, in their order.
extern const std::vector<Column> all_columns;

/// A table for each problem, pass and device, in the order of their first rows: a heading, a line per row, and what went wrong
/// below it. Columns that make a table wider than `width` are left out, and named at the end.
std::string comparison_tables(const std::vector<Row>&, std::size_t width);

/// A header line and a line per row; empty cells where a row has no such value. Quoted as RFC 4180 says.
std::string csv_text(const std::vector<Row>&);

}  // namespace flash
