// Text for people: lines that fit a terminal, aligned tables, short numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace flash {

/// One line, broken at spaces where it is longer than 80 columns; each line after the first starts with `indent` spaces.
std::string wrapped(const std::string& line, std::size_t indent = 0);

/// Control characters as \n and \x1b, so that what the user gave cannot break a message or steer a terminal. UTF-8 is left alone.
std::string one_line(const std::string& text);

/// The rows after `indent` spaces, each column as wide as its widest cell: the first `left` columns to the left, the others to the right.
std::string table(std::size_t indent, const std::vector<std::vector<std::string>>& rows, std::size_t left = 1);

/// "3.1e-07", "12.3", "0": `digits` significant digits; "not finite" for NaN and infinities.
std::string number_text(double value, int digits = 3);

/// "12,345,678".
std::string count_text(std::uint64_t value);

/// Puts all of it on stdout, or throws UsageError.
void print(const std::string& text);

}  // namespace flash
