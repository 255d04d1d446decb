#include "common/harness/text.hpp"

#include "common/machine/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>

namespace flash {

std::string wrapped(const std::string& line, std::size_t indent) {
  constexpr std::size_t columns = 80;
  std::string lines, rest = line;
  while (rest.size() > columns) {
    // The last space that leaves no more than a line before it; else the first one of all, behind a long word.
    const std::size_t text = rest.find_first_not_of(' ');
    std::size_t end = rest.rfind(' ', columns);
    if (end == std::string::npos || end < text) end = rest.find(' ', text);
    const std::size_t next = rest.find_first_not_of(' ', end);
    if (end == std::string::npos || next == std::string::npos) break;
    lines += rest.substr(0, rest.find_last_not_of(' ', end) + 1) + "\n";
    rest = std::string(indent, ' ') + rest.substr(next);
  }
  return lines + rest;
}

std::string one_line(const std::string& text) {
  std::string line;
  const std::size_t end = text.find_last_not_of(" \n") + 1;  // CLI11 ends some messages with a newline
  for (const char letter : text.substr(0, end)) {
    const auto byte = static_cast<unsigned char>(letter);
    char code[5];
    std::snprintf(code, sizeof code, "\\x%02x", byte);
    line += letter == '\n' ? "\\n" : byte < 0x20 || byte == 0x7f ? code : std::string(1, letter);
  }
  return line;
}

std::string table(std::size_t indent, const std::vector<std::vector<std::string>>& rows, std::size_t left) {
  std::vector<std::size_t> width(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < width.size(); ++c) width[c] = std::max(width[c], row[c].size());
  }
  std::string lines;
  for (const auto& row : rows) {
    std::string line(indent, ' ');
    for (std::size_t c = 0; c < width.size(); ++c) {
      const std::string padding(width[c] - row[c].size(), ' ');
      line += (c > 0 ? "  " : "") + (c < left ? row[c] + padding : padding + row[c]);
    }
    lines += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return lines;
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

void print(const std::string& text) {
  std::cout << text << std::flush;
  if (!std::cout) throw UsageError("standard output cannot be written");
}

}  // namespace flash
