// Torch's attention, for comparison: peers.py, which answers for each run with a row as a stage program does.
#pragma once

#include "common/compare/plan.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace flash {

/// What peers.py says of itself; loads torch. UsageError if it cannot be started, DeviceError if it finds no torch or no GPU.
Stage ask_peers(const std::filesystem::path& sources);

/// For a Conversation.
std::vector<std::string> peers_command(const Stage& peers);

/// The line that asks peers.py for a run. Until it answers to `first`, torch is being loaded.
namespace question {
inline constexpr const char* first = R"({"list": true})";
std::string of(const Run&, int iterations);
}  // namespace question

/// The row of the answer, whose verdict is that of peers.py if it gave one.
Row peer_row(const Run&, const ProcessResult& answer);

}  // namespace flash
