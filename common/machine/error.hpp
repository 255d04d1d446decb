// The errors that end a program with an exit code of their own.
#pragma once

#include <stdexcept>
#include <string>

namespace flash {

/// Bad usage or input: exit code 2. what() is one line: what was given, what is allowed.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// No usable device, not enough memory, or a launch that failed: exit code 3.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A kernel asks for more than the GPU has, or does something a GPU does not define, where the simulator stops it: exit code 1, like any
/// wrong result.
struct KernelError : std::runtime_error {
  KernelError(const char* broken_rule, const std::string& message) : std::runtime_error(message), rule(broken_rule) {}
  const char* rule;  ///< its id: common/machine/rules.hpp
};

}  // namespace flash
