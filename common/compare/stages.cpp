#include "common/compare/stages.hpp"

#include "common/attention/features.hpp"
#include "common/base/error.hpp"
#include "common/base/process.hpp"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace flash {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

/// NN_name, a file that may be executed.
bool is_stage(const fs::path& path) {
  const std::string name = path.filename().string();
  const auto is_digit = [&](std::size_t at) { return name[at] >= '0' && name[at] <= '9'; };
  const bool named = name.size() > 3 && is_digit(0) && is_digit(1) && name[2] == '_' && name.find('.') == std::string::npos;
  std::error_code error;
  return named && fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

bool matches(const fs::path& path, const std::string& wanted) {
  const std::string name = path.filename().string();
  return name == wanted || name.substr(0, 2) == wanted;
}

bool contains(const std::vector<std::string>& list, const std::string& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// The stage of a program that `command` started and that has answered.
Stage listed_stage(const std::vector<std::string>& command, const ProcessResult& result) {
  const Json list = Json::parse(result.output, nullptr, /*allow_exceptions=*/false);
  try {
    Stage stage{list.at("stage"), command, {}, list.value("about", Json())};
    for (const auto& row : list.at("variants")) {
      stage.variants.push_back({row.at("name"), row.at("idea"), row.at("kernel"), row.at("passes"), row.at("dtypes"),
                                row.value("only_if_fastest", false), std::nullopt, row.value("needs", Names())});
      if (row.contains("takes")) stage.variants.back().takes = row["takes"].get<Names>();
    }
    return stage;
  } catch (const nlohmann::json::exception&) {
    throw UsageError(command.back() + " does not answer --list --json as a stage program does");
  }
}

/// The command that starts Python: what the environment variable PYTHON says, or python3.
std::string python() {
  const char* given = std::getenv("PYTHON");
  return given != nullptr && *given != '\0' ? given : "python3";
}

}  // namespace

bool ListedVariant::has(Pass pass) const { return contains(passes, to_string(pass)); }
bool ListedVariant::has(Dtype dtype) const { return contains(dtypes, to_string(dtype)); }

std::string ListedVariant::refusal(const FullProblem& problem) const {
  const Names present = names_of(features_of(problem));
  std::string text;
  const auto list = [&](const char* words, const Names& names, const Names& among) {
    for (const std::string& feature : names) {
      if (!contains(among, feature)) text += (text.empty() ? words : ", ") + feature;
    }
  };
  if (takes) list("not made for ", present, *takes);
  if (text.empty()) list("made only for ", needs, present);
  return text;
}

std::vector<fs::path> find_stages(fs::path folder, const std::vector<std::string>& only) {
  std::vector<fs::path> all;
  std::error_code error;
  if (folder.empty()) folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (is_stage(entry->path())) all.push_back(entry->path());
  }
  if (error) throw UsageError("'" + folder.string() + "' cannot be listed: " + error.message());
  if (all.empty())
    throw UsageError("no stage programs (NN_name) in '" + folder.string() + "'; build them, or name their folder by --bin");
  std::sort(all.begin(), all.end());
  if (only.empty()) return all;

  std::string names;
  for (const fs::path& path : all) names += (names.empty() ? "" : ", ") + path.filename().string();
  for (const std::string& wanted : only) {
    if (std::none_of(all.begin(), all.end(), [&](const fs::path& path) { return matches(path, wanted); })) {
      throw UsageError("--only has '" + wanted + "'; allowed: " + names);
    }
  }
  std::erase_if(all, [&](const fs::path& path) {
    return std::none_of(only.begin(), only.end(), [&](const std::string& wanted) { return matches(path, wanted); });
  });
  return all;
}

Stage ask_stage(const fs::path& program, std::chrono::seconds limit) {
  const ProcessResult answer = run_process({program.string(), "--list", "--json"}, std::min(limit, std::chrono::seconds(60)));
  if (const std::string why = complaint(answer); !why.empty()) {
    throw UsageError(program.string() + " --list --json does not answer: " + why);
  }
  return listed_stage({program.string()}, answer);
}

Stage ask_peers(const fs::path& sources) {
  const std::string program = sources / "common" / "compare" / "peers.py";
  const ProcessResult answer = run_process({python(), program, "--list"}, torch_loads_in);
  if (const std::string why = complaint(answer); !why.empty()) {
    const std::string text = "--only peer needs Python, torch and a GPU: " + why;
    if (answer.exit_code == 3) throw DeviceError(text);
    throw UsageError(text);
  }
  Stage peers = listed_stage({python(), program}, answer);
  if (!peers.about.is_object() || !peers.about.contains("device")) throw UsageError(program + " does not name its GPU");
  return peers;
}

}  // namespace flash
