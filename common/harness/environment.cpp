#include "common/harness/environment.hpp"

#include "common/harness/console.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/error.hpp"

#include <algorithm>
#include <string_view>

extern char** environ;

namespace flash {
namespace {

struct Variable {
  const char *name, *values, *text;
};

constexpr Variable known[]{
    {"FLASH_SIMT_ORDER", "forward|reverse|random:SEED",
     "In which order the simulator takes the threads of a block; no correct result depends on it (default: forward)"},
    {"FLASH_SIMT_THREADS", "N", "Threads of the CPU that the simulator uses, 1 to 1024 (default: all)"},
    {"FLASH_SIMT_TARGET", "75|80|90", "The GPU that the simulator stands for, as its compute capability (default: 90)"},
    {"FLASH_SIMT_STEPS", "N",
     "Accesses to memory after which a simulated thread counts as endless; a barrier counts as 1024 (default: 2^30)"},
    {"FLASH_SIMT_TRACE", "FILE",
     "Who does what when in the first block of each launch, an event a line: loads, mbarriers, products of warpgroups"},
    {"FLASH_COMMIT", "ID", "The commit that saved rows name, in a copy of which git knows another or none"},
};

/// Prefixes of the variables of common/check_gpu.sh and of the package flash-attn.
constexpr std::string_view of_others[]{"FLASH_CHECK_", "FLASH_ATTENTION_", "FLASH_ATTN_"};

}  // namespace

void check_environment() {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view setting = *entry, name = setting.substr(0, setting.find('='));
    const auto starts = [&](std::string_view prefix) { return name.starts_with(prefix); };
    const auto is_name = [&](const Variable& variable) { return name == variable.name; };
    if (!starts("FLASH_") || std::any_of(std::begin(of_others), std::end(of_others), starts)) continue;
    if (std::any_of(std::begin(known), std::end(known), is_name)) continue;
    std::string names;
    for (const Variable& variable : known) names += (names.empty() ? "" : ", ") + std::string(variable.name);
    throw UsageError("the environment variable " + std::string(name) + " is unknown; allowed: " + names);
  }
  simt::options();
}

std::string environment_help() {
  std::string text = "\nEnvironment:\n";
  for (const Variable& variable : known) {
    std::string line = std::string("  ") + variable.name + "=" + variable.values;
    const bool fits = line.size() + 2 <= help_column;
    if (!fits) {
      text += line + "\n";
      line.clear();
    }
    line.resize(help_column, ' ');
    text += wrapped(line + variable.text, help_column) + "\n";
  }
  return text;
}

}  // namespace flash
