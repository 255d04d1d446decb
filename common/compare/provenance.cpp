#include "common/compare/provenance.hpp"

#include "common/base/process.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <regex>
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

/// Adds `file` if it holds a kernel or is of a stage, and the .cuh files that it includes, and those that they include.
void collect_kernel_files(const std::filesystem::path& sources, const std::string& file,
                          std::map<std::string, std::string>& texts, std::vector<std::string>& kernels) {
  if (texts.contains(file)) return;
  std::ostringstream text;
  text << std::ifstream(sources / file).rdbuf();
  const std::string& code = texts[file] = text.str();
  const bool of_stage = file.size() > 1 && std::isdigit(static_cast<unsigned char>(file[0])) != 0;
  if (of_stage || code.find("__global__") != std::string::npos) kernels.push_back(file);
  static const std::regex include("#include \"([^\"]+\\.cuh)\"");
  for (std::sregex_iterator at(code.begin(), code.end(), include), end; at != end; ++at) {
    collect_kernel_files(sources, (*at)[1].str(), texts, kernels);
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

std::string code_id(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (!quoted && text.compare(i, 2, "//") == 0)
      i = std::min(text.find('\n', i), text.size()) - 1;
    else if (std::isspace(static_cast<unsigned char>(c)) == 0)
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    quoted = c == '"' ? !quoted || text[i - 1] == '\\' : quoted && c != '\n';
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

Json code_ids(const std::filesystem::path& sources, const std::string& kernel) {
  std::map<std::string, std::string> texts;
  std::vector<std::string> kernels;
  if (!kernel.empty()) collect_kernel_files(sources, kernel, texts, kernels);
  Json ids = Json::object();
  for (const std::string& file : kernels) {
    ids[file] = std::filesystem::is_regular_file(sources / file) ? Json(code_id(texts.at(file))) : Json();
  }
  return ids;
}

}  // namespace flash
