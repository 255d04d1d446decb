// For tests of what people read.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>

namespace flash::test {

inline std::size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

/// The words alone, with a space between two: what a sentence says, wherever its lines end.
inline std::string words(const std::string& text) {
  std::istringstream stream(text);
  std::string all;
  for (std::string word; stream >> word;) all += (all.empty() ? "" : " ") + word;
  return all;
}

}  // namespace flash::test
