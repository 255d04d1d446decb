// The bug zoo: mistakes that a GPU answers with wrong results now and then, each beside the same kernel done right. The simulator must
// name the bug and its line, and say nothing about the twin.
#pragma once

#include "common/machine/cpu/findings.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/cuda.cuh"
#include "common/machine/error.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace flash {

/// "zoo_sync.cpp:12": the line of `file` that ends with the comment "// BUG name", or "// BUG one | name | another".
inline std::string bug(const std::string& file, const std::string& name) {
  std::ifstream source(file);
  int number = 0;
  for (std::string line; std::getline(source, line);) {
    ++number;
    const std::size_t mark = line.find("// BUG ");
    if (mark != std::string::npos && ("| " + line.substr(mark + 7) + " |").find("| " + name + " |") != std::string::npos)
      return file.substr(file.rfind('/') + 1) + ":" + std::to_string(number);
  }
  throw std::logic_error(file + " has no line that ends with // BUG " + name);
}
#define BUG(name) bug(__FILE__, name)

/// Runs a kernel on one block; returns the rule that it breaks and the simulator's message, "out_of_bounds: kernel zoo, ...", "" if there is none.
template <class... Parameters, class... Arguments>
std::string report(unsigned threads, std::size_t shared_bytes, void (*kernel)(Parameters...), Arguments&&... arguments) {
  try {
    launch("zoo", {dim3(1), dim3(threads), shared_bytes}, kernel, arguments...);
  } catch (const KernelError& error) {
    return std::string(error.rule) + ": " + error.what();
  }
  return "";
}

/// Does the text hold all parts, in this order?
inline bool has(const std::string& text, const std::vector<std::string>& parts) {
  std::size_t from = 0;
  for (const std::string& part : parts) {
    from = text.find(part, from);
    if (from == std::string::npos) return false;
    from += part.size();
  }
  return true;
}

/// The message without its rule, as docs/lab/zoo.sh prints it.
inline std::string message_of(const std::string& outcome) {
  const std::size_t kernel = outcome.find(": kernel");
  return kernel == std::string::npos ? outcome : outcome.substr(kernel + 2);
}

#define CHECK_REPORT(expression, ...)                         \
  do {                                                        \
    const std::string outcome = expression;                   \
    const std::string message = ::flash::message_of(outcome); \
    CAPTURE(message);                                         \
    CHECK(::flash::has(outcome, {__VA_ARGS__}));              \
  } while (false)

}  // namespace flash
