// For tests that run a stage program as its users do.
#pragma once

#include "common/base/process.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace flash::test {

inline ProcessResult run_program(const char* program, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), program);
  return run_process(arguments, std::chrono::seconds(60));
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The program ended by itself, with this exit code, one line on stderr that has `part`, and nothing on stdout.
inline void check_refused(const ProcessResult& result, int exit_code, const std::string& part = "") {
  CHECK_FALSE(result.timed_out);
  CHECK(result.signal == 0);
  CHECK_MESSAGE(result.exit_code == exit_code, result.error);
  CHECK(result.output.empty());
  CHECK_MESSAGE(std::count(result.error.begin(), result.error.end(), '\n') == 1, result.error);
  CHECK_MESSAGE(contains(result.error, part), result.error);
}

}  // namespace flash::test
