// Aligned tables and short numbers for reports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace flash {

/// Rows of cells; every column as wide as its widest cell. ASCII only: a byte is a column. A title may have two lines.
class TextTable {
 public:
  enum class Align { left, right };

  explicit TextTable(std::vector<std::string> header, std::vector<Align> align = {});
  void add(std::vector<std::string> row);

  /// All lines, each with `indent` spaces before it and without trailing spaces. `rule` draws a line below the header.
  std::string text(std::size_t indent, bool rule = false) const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the header first
  std::size_t header_rows_ = 1;
  std::vector<Align> align_;  // missing ones: the first column left, the others right
};

/// "3.1e-07", "12.3", "0": `digits` significant digits; "not finite" for NaN and infinities.
std::string number_text(double value, int digits = 3);

/// "12,345,678".
std::string count_text(std::uint64_t value);

}  // namespace flash
