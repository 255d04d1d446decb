#include "common/compare/provenance.hpp"

#include "common/compare/process.hpp"

#include <ctime>

namespace flash {
namespace {

using Json = nlohmann::ordered_json;

/// The first line that git answers, or null.
Json ask_git(const std::filesystem::path& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"git", "-C", folder.string()});
  const ProcessResult answer = run_process(arguments, std::chrono::seconds(30));
  const std::string line = answer.output.substr(0, answer.output.find('\n'));
  if (!answer.started || answer.timed_out || answer.signal != 0 || answer.exit_code != 0 || line.empty()) return nullptr;
  return line;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

}  // namespace

Json commit_and_date(const std::filesystem::path& sources) {
  // A pattern that excludes all tags: the full commit id is left.
  return {{"commit", ask_git(sources, {"describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"})}, {"date", utc_now()}};
}

Json blob_ids(const std::filesystem::path& sources, const std::string& kernel) {
  Json ids = Json::object();
  if (!kernel.empty()) ids[kernel] = ask_git(sources, {"hash-object", "--", kernel});
  return ids;
}

}  // namespace flash
