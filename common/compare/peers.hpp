// Torch's attention, for comparison: peers.py, which answers for each run with a row as a stage program does.
#pragma once

#include "common/compare/plan.hpp"

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace flash {

/// What peers.py says of itself; loads torch. UsageError if it cannot be started, DeviceError if it finds no torch or no GPU.
Stage ask_peers(const std::filesystem::path& sources);

/// For a Conversation.
std::vector<std::string> peers_command(const Stage& peers);

/// The first line for it, answered once torch is loaded.
inline constexpr const char* peers_ready = R"({"list": true})";
inline constexpr std::chrono::minutes torch_loads_in{5};

/// The line that asks for a run.
std::string peers_question(const Run&, int iterations);

/// The row of the answer, whose verdict is that of peers.py if it gave one.
Row peer_row(const Run&, const ProcessResult& answer);

}  // namespace flash
