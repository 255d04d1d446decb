#include "common/compare/provenance.hpp"

#include "common/base/process.hpp"

#include <cctype>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

namespace flash {
namespace {

using Json = nlohmann::ordered_json;

/// The first line that git answers, or null.
Json ask_git(const std::filesystem::path& folder, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"git", "-C", folder.string()});
  const ProcessResult answer = run_process(arguments, std::chrono::seconds(30));
  const std::string line = answer.output.substr(0, answer.output.find('\n'));
  return complaint(answer).empty() && !line.empty() ? Json(line) : Json();
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

/// Adds the id of `file` if it holds a kernel or is of a stage, and of the .cuh files that it includes, and those that they include.
void add_blob_ids(const std::filesystem::path& sources, const std::string& file, std::set<std::string>& seen, Json& ids) {
  if (file.empty() || !seen.insert(file).second) return;
  std::ostringstream text;
  text << std::ifstream(sources / file).rdbuf();
  const std::string code = text.str();
  const bool of_stage = std::isdigit(static_cast<unsigned char>(file[0])) != 0;
  if (of_stage || code.find("__global__") != std::string::npos) ids[file] = ask_git(sources, {"hash-object", "--", file});
  static const std::regex include("#include \"([^\"]+\\.cuh)\"");
  for (std::sregex_iterator at(code.begin(), code.end(), include), end; at != end; ++at) {
    add_blob_ids(sources, (*at)[1].str(), seen, ids);
  }
}

}  // namespace

Json commit_and_date(const std::filesystem::path& sources) {
  const char* told = std::getenv("FLASH_COMMIT");
  // A pattern that excludes all tags: the full commit id is left.
  const Json commit =
      told != nullptr ? Json(told) : ask_git(sources, {"describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"});
  return {{"commit", commit}, {"date", utc_now()}};
}

Json blob_ids(const std::filesystem::path& sources, const std::string& kernel) {
  Json ids = Json::object();
  std::set<std::string> seen;
  add_blob_ids(sources, kernel, seen, ids);
  return ids;
}

}  // namespace flash
