#include "common/harness/text_table.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace flash {

TextTable::TextTable(std::vector<std::string> header, std::vector<Align> align) : align_(std::move(align)) {
  while (align_.size() < header.size()) align_.push_back(align_.empty() ? Align::left : Align::right);
  std::vector<std::string> upper(header.size());
  for (std::size_t c = 0; c < header.size(); ++c) {
    const std::size_t end = header[c].find('\n');
    if (end == std::string::npos) continue;
    upper[c] = header[c].substr(0, end);
    header[c].erase(0, end + 1);
    header_rows_ = 2;
  }
  if (header_rows_ == 2) rows_.push_back(std::move(upper));
  rows_.push_back(std::move(header));
}

void TextTable::add(std::vector<std::string> row) {
  row.resize(align_.size());
  rows_.push_back(std::move(row));
}

std::string TextTable::text(std::size_t indent, bool rule) const {
  std::vector<std::size_t> width(align_.size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < width.size(); ++c) width[c] = std::max(width[c], row[c].size());
  }
  std::string all;
  const auto add_line = [&](std::string line) {
    line.resize(line.find_last_not_of(' ') + 1);
    all += line + "\n";
  };
  for (const auto& row : rows_) {
    std::string line(indent, ' ');
    for (std::size_t c = 0; c < width.size(); ++c) {
      const std::string padding(width[c] - row[c].size(), ' ');
      line += (c > 0 ? "  " : "") + (align_[c] == Align::left ? row[c] + padding : padding + row[c]);
    }
    add_line(line);
    if (rule && &row == &rows_[header_rows_ - 1]) {
      std::string below(indent, ' ');
      for (std::size_t c = 0; c < width.size(); ++c) below += (c > 0 ? "  " : "") + std::string(width[c], '-');
      add_line(below);
    }
  }
  return all;
}

std::string number_text(double value, int digits) {
  if (!std::isfinite(value)) return "not finite";
  char text[48];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

std::string count_text(std::uint64_t value) {
  std::string text = std::to_string(value);
  for (std::size_t place = text.size(); place > 3;) text.insert(place -= 3, ",");
  return text;
}

}  // namespace flash
