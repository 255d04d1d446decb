// The stage programs and what they say about themselves.
#pragma once

#include "common/attention/problem.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace flash {

struct ListedVariant {
  std::string name, idea, kernel;
  std::vector<std::string> passes, dtypes;

  bool has(Pass) const;
  bool takes(Dtype) const;
};

struct Stage {
  std::string name;  ///< "02_safe_softmax"
  std::filesystem::path program;
  std::vector<ListedVariant> variants;
};

/// The folder in which the running program lies.
std::filesystem::path own_folder(const char* argv0);

/// Paths of all executables in `folder` named by two digits, an underscore and a word, in order. With `only`, those whose number
/// or name is in it. UsageError if there are none, or if an entry of `only` matches none.
std::vector<std::filesystem::path> find_stages(const std::filesystem::path& folder, const std::vector<std::string>& only);

/// Asks the program with --list --json. UsageError if it does not answer as a stage does.
Stage ask_stage(const std::filesystem::path& program);

}  // namespace flash
