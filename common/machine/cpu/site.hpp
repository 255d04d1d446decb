// A place in the source, for messages.
#pragma once

namespace flash {
inline namespace simt {

/// Taken as a defaulted last parameter, `Site site = Site::here()`, it names the line of the call.
struct Site {
  const char* file = "";
  int line = 0;

  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
  friend constexpr bool operator==(const Site& a, const Site& b) { return a.file == b.file && a.line == b.line; }
};

}  // namespace simt
}  // namespace flash
