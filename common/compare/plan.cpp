#include "common/compare/plan.hpp"

#include "common/attention/device.hpp"
#include "common/attention/features.hpp"
#include "common/base/error.hpp"
#include "common/base/process.hpp"
#include "common/harness/json.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>

namespace flash {
namespace {

/// A step of the backward pass runs the forward pass of another step first, which has a row of its own.
bool is_about(const ListedVariant& variant, Pass pass) {
  const bool borrowed = pass == Pass::forward && variant.kernel.find("backward/") != std::string::npos;
  return variant.has(pass) && !borrowed;
}

/// Drops all variants but those of --variant. UsageError if one is nowhere.
void keep_variants(std::vector<Stage>& stages, const std::vector<std::string>& wanted) {
  std::set<std::string> known;  // stages share some names
  for (Stage& stage : stages) {
    for (const ListedVariant& variant : stage.variants) known.insert(variant.name);
    std::erase_if(stage.variants, [&](const ListedVariant& variant) {
      return !wanted.empty() && std::find(wanted.begin(), wanted.end(), variant.name) == wanted.end();
    });
  }
  for (const std::string& name : wanted) {
    if (known.contains(name)) continue;
    std::string names;
    for (const std::string& each : known) names += (names.empty() ? "" : ", ") + each;
    throw UsageError("--variant has '" + name + "'; allowed: " + names);
  }
}

/// The device that all rows run on, as a report names it: for auto, a GPU if the first stage program finds one.
Json choose_device(const CompareOptions& options, const Stage& first) {
  if (first.is_peers()) return first.about.at("device");
  const Json cpu = device_json(open_cpu()->info());
  if (options.device == DeviceChoice::cpu) return cpu;
  std::vector<std::string> smallest = first.command;
  for (const char* word :
       {"--device", "gpu", "--batch", "1", "--heads", "1", "--seq", "1", "--head-dim", "1", "--no-check", "--json"})
    smallest.emplace_back(word);
  const ProcessResult probe = run_process(smallest, options.time_limit);
  if (complaint(probe).empty()) {
    const Json report = Json::parse(probe.output, nullptr, /*allow_exceptions=*/false);
    return report.is_object() && report.contains("device") ? report["device"] : Json{{"kind", "gpu"}, {"name", ""}};
  }
  if (options.device != DeviceChoice::gpu && !options.peers) return cpu;
  throw DeviceError(std::string(options.peers ? "--only peer needs a GPU" : "--device is gpu") +
                    ", but it does not work: " + probe.error.substr(0, probe.error.find('\n')));
}

void add_runs(Plan& plan, const CompareOptions& options) {
  std::map<std::string, std::set<std::string>> refused;  // why -> labels
  for (const Case& task : plan.cases) {
    for (const Pass pass : options.passes) {
      for (const Stage& stage : plan.stages) {
        const Dtype dtype = task.problem.dtype;
        const auto takes = [&](const ListedVariant& variant) { return variant.has(dtype); };
        const bool has_options = (features_of(task.problem) & ~every_kernel_takes) != Features::none;
        if (!stage.variants.empty() && std::none_of(stage.variants.begin(), stage.variants.end(), takes))
          plan.left_out.insert(stage.name + ", which does not take " + to_string(dtype));
        const auto first = static_cast<std::ptrdiff_t>(plan.runs.size());
        const auto fits = [&](const ListedVariant& variant) {
          if (!is_about(variant, pass) || !takes(variant)) return false;
          const std::string why = variant.refusal(task.problem);
          if (variant.only_if_fastest && options.variants.empty()) return why.empty() && has_options;
          if (!why.empty()) refused[why].insert(stage.name + "/" + variant.name);
          return why.empty();
        };
        for (auto variant = stage.variants.begin(); variant != stage.variants.end(); ++variant) {
          const bool last =
              stage.is_peers() || std::none_of(std::next(variant), stage.variants.end(), fits);  // peers are no steps
          if (fits(*variant) && (last || !options.last)) plan.runs.push_back({&stage, &*variant, pass, &task});
        }
        // The order of the ladder is that of the files.
        std::stable_sort(plan.runs.begin() + first, plan.runs.end(),
                         [](const Run& a, const Run& b) { return a.variant->kernel < b.variant->kernel; });
      }
    }
  }
  for (const auto& [why, labels] : refused) {
    plan.left_out.insert((labels.size() == 1 ? *labels.begin() : std::to_string(labels.size()) + " variants") + ", " + why);
  }
  if (options.rounds > 1) return;                            // whoever is compared takes turns
  std::stable_partition(plan.runs.begin(), plan.runs.end(),  // while stages run, torch has no part of the GPU
                        [](const Run& run) { return !run.stage->is_peers(); });
}

/// A hash of what a compiler sees of this code, 16 hexadecimal digits: tokens without comments, however they are laid out. Rows keep it, so
/// that a better comment leaves them valid. rows.py has the same function.
std::string code_hash(const std::string& code) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  const auto add = [&](char c) { hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u; };
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  const auto skip_to = [&](std::string_view end, std::size_t from) { return std::min(code.find(end, from), code.size()); };
  char last = ' ';
  bool apart = false;  // white space or a comment since the last character
  for (std::size_t at = 0; at < code.size(); ++at) {
    const char c = code[at];
    if (code.compare(at, 2, "//") == 0) {
      at = skip_to("\n", at), apart = true;
    } else if (code.compare(at, 2, "/*") == 0) {
      at = skip_to("*/", at + 2) + 1, apart = true;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      apart = true;
    } else if (c == '"') {
      std::size_t end = at + 1;
      while (end < code.size() && code[end] != '"') end += code[end] == '\\' ? 2 : 1;
      for (; at < std::min(end, code.size() - 1); ++at) add(code[at]);
      add(last = '"'), apart = false;
    } else {
      if (apart && is_word(last) && is_word(c)) add(' ');
      add(last = c), apart = false;
    }
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

/// Adds {path -> code_hash()} of `file` if it holds a kernel or is of a stage, and of the .cuh files that it includes, and those that they
/// include; null where a file is missing.
void add_hashes(const std::filesystem::path& sources, const std::string& file, std::set<std::string>& seen, Json& hashes) {
  if (file.empty() || !seen.insert(file).second) return;
  std::ifstream stream(sources / file);
  std::ostringstream text;
  text << stream.rdbuf();
  const std::string code = text.str();
  const bool of_stage = std::isdigit(static_cast<unsigned char>(file[0])) != 0;
  if (of_stage || code.find("__global__") != std::string::npos) hashes[file] = stream ? Json(code_hash(code)) : Json();
  const std::string include = "#include \"";
  for (std::size_t at = code.find(include); at != std::string::npos; at = code.find(include, at)) {
    at += include.size();
    const std::string included = code.substr(at, code.find('"', at) - at);
    if (included.ends_with(".cuh")) add_hashes(sources, included, seen, hashes);
  }
}

/// {"commit": what the environment variable FLASH_COMMIT says, or else the id of HEAD, with "-dirty" if files have changed since, null
/// where git or the repository is missing; "date": "2026-01-31T12:00:00Z"}.
Json commit_and_date(const std::filesystem::path& sources) {
  Json commit;
  if (const char* told = std::getenv("FLASH_COMMIT"); told != nullptr) {
    commit = told;
  } else {  // a pattern that excludes all tags: the full commit id is left
    const ProcessResult git = run_process(
        {"git", "-C", sources, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"}, std::chrono::seconds(30));
    if (complaint(git).empty()) commit = git.output.substr(0, git.output.find('\n'));
  }
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return {{"commit", commit}, {"date", date}};
}

}  // namespace

RequestedSizes compared_sizes(Backend backend) {
  if (backend == Backend::cpu) return {.batch = 1, .heads = 2, .kv_heads = 0, .seq_q = 256, .seq_k = 256, .head_dim = 64};
  return {.batch = 8, .heads = 12, .kv_heads = 0, .seq_q = 1024, .seq_k = 1024, .head_dim = 64};
}

Plan make_plan(const CompareOptions& options, const std::filesystem::path& sources) {
  Plan plan;
  if (options.stages) {
    for (const auto& program : find_stages(options.bin, options.only))
      plan.stages.push_back(ask_stage(program, options.time_limit));
  }
  if (options.peers) plan.stages.push_back(ask_peers(sources));
  keep_variants(plan.stages, options.variants);
  plan.device = choose_device(options, plan.stages.front());
  plan.backend = plan.device.value("kind", "") == "gpu" ? Backend::gpu : Backend::cpu;
  plan.cases = all_cases(options.problems, compared_sizes(plan.backend));
  add_runs(plan, options);
  if (plan.runs.empty()) {
    std::string why;
    for (const std::string& refusal : plan.left_out) why += "; left out: " + refusal;
    throw UsageError("nothing to run" + (why.empty() ? ": no stage here has this pass" : why));
  }
  plan.when = commit_and_date(sources);
  for (const Run& run : plan.runs) {
    const std::string& kernel = run.variant->kernel;
    if (plan.sources.contains(kernel)) continue;
    std::set<std::string> seen;
    add_hashes(sources, kernel, seen, plan.sources[kernel] = Json::object());
  }
  return plan;
}

}  // namespace flash
