// The stage programs and what they say about themselves.
#pragma once

#include "common/attention/problem.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace flash {

using Json = nlohmann::ordered_json;

struct ListedVariant {
  std::string name, idea, kernel;
  std::vector<std::string> passes, dtypes;
  bool only_if_fastest = false;  ///< for some problems only: compared on problems with options, or if it is asked for
  std::optional<std::vector<std::string>> takes;  ///< features of a problem, as names_of() has them; if it does not say: all
  std::vector<std::string> needs;                 ///< of them, those that a problem must have

  bool has(Pass) const;
  bool has(Dtype) const;
  /// "" or what is between them: "not made for --window" or "made only for --score lorentz".
  std::string refusal(const FullProblem&) const;
};

/// The stage of peers' rows.
inline constexpr const char* peers_name = "peer";

struct Stage {
  std::string name;                  ///< "02_safe_softmax"
  std::vector<std::string> command;  ///< that starts its program
  std::vector<ListedVariant> variants;
  Json about = nullptr;  ///< of peers: what every row of theirs has, their device and the version of torch

  bool is_peers() const { return name == peers_name; }
};

/// Paths of all executables in `folder` ("": that of the running program) named by two digits, an underscore and a word, in order.
/// With `only`, those whose number or name is in it. UsageError if there are none, or if an entry of `only` matches none.
std::vector<std::filesystem::path> find_stages(std::filesystem::path folder, const std::vector<std::string>& only);

/// Asks the program with --list --json. UsageError if it does not answer as a stage does, within a minute and the limit of a run.
Stage ask_stage(const std::filesystem::path& program, std::chrono::seconds limit);

/// Torch's attention, for comparison: peers.py, which answers with a row as a stage program does. UsageError if it cannot be
/// started, DeviceError if it finds no torch or no GPU.
Stage ask_peers(const std::filesystem::path& sources);

inline constexpr std::chrono::minutes torch_loads_in{5};

}  // namespace flash
