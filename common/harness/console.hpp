// Output for people: lines that fit a terminal, and none lost in silence.
#pragma once

#include <cstddef>
#include <string>

namespace flash {

/// The columns that a line may take.
constexpr std::size_t page_columns = 80;

/// The column in which CLI11 starts the texts of --help.
constexpr std::size_t help_column = 30;

/// One line, broken at spaces where it is longer than page_columns; each line after the first starts with `indent` spaces. A word
/// that does not fit a line stays whole.
std::string wrapped(const std::string& line, std::size_t indent = 0);

/// Puts all of it on stdout, or throws UsageError.
void print(const std::string& text);

}  // namespace flash
