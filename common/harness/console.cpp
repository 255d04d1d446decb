#include "common/harness/console.hpp"

#include "common/machine/error.hpp"

#include <iostream>

namespace flash {

std::string wrapped(const std::string& line, std::size_t indent) {
  std::string all, rest = line;
  while (rest.size() > page_columns) {
    // The last space that leaves no more than a line before it; else the first one of all, behind a long word.
    const std::size_t text = rest.find_first_not_of(' ');
    std::size_t end = rest.rfind(' ', page_columns);
    if (end == std::string::npos || end < text) end = rest.find(' ', text);
    if (end == std::string::npos) break;
    const std::size_t next = rest.find_first_not_of(' ', end);
    if (next == std::string::npos) break;  // spaces alone
    all += rest.substr(0, rest.find_last_not_of(' ', end) + 1) + "\n";
    rest = std::string(indent, ' ') + rest.substr(next);
  }
  return all + rest;
}

void print(const std::string& text) {
  std::cout << text << std::flush;
  if (!std::cout) throw UsageError("standard output cannot be written");
}

}  // namespace flash
