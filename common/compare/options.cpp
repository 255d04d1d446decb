#include "common/compare/options.hpp"

#include "common/harness/parse.hpp"

#include <CLI/CLI.hpp>

#include <sstream>

namespace flash {
namespace {

constexpr DeviceChoice all_devices[]{DeviceChoice::automatic, DeviceChoice::gpu, DeviceChoice::cpu};
constexpr Pass all_passes[]{Pass::forward, Pass::backward};

/// The size that a sweep's name means.
std::optional<std::int64_t> SizeOptions::*swept_size(const std::string& name) {
  if (name == "seq") return &SizeOptions::seq;
  if (name == "batch") return &SizeOptions::batch;
  if (name == "heads") return &SizeOptions::heads;
  if (name == "d" || name == "head-dim") return &SizeOptions::head_dim;
  return nullptr;
}

/// "seq=128..16384": 128, 256, ... up to 16384.
void parse_sweep(const std::string& text, CompareOptions& options) {
  const std::size_t equals = text.find('='), dots = text.find("..");
  const std::string name = text.substr(0, equals);
  if (equals == std::string::npos || dots == std::string::npos || dots < equals || swept_size(name) == nullptr) {
    throw UsageError("--sweep is '" + text + "'; allowed: NAME=FIRST..LAST with NAME seq, batch, heads or d");
  }
  const std::int64_t first = parse_whole_number("--sweep " + name, text.substr(equals + 1, dots - equals - 1), 1);
  const std::int64_t last = parse_whole_number("--sweep " + name, text.substr(dots + 2), first);
  options.sweep_name = name;
  options.sweep_values.clear();
  for (std::int64_t value = first;; value *= 2) {
    options.sweep_values.push_back(value);
    if (value > last / 2) break;  // the next would exceed `last`, or 63 bits
  }
}

std::vector<std::string> split_at_commas(const std::string& option, const std::string& text, const char* example) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    if (!part.empty()) parts.push_back(part);
  }
  if (parts.empty()) throw UsageError(option + " is '" + text + "'; allowed: " + example);
  return parts;
}

int parse_count(const std::string& option, const std::string& text) {
  const std::int64_t value = parse_whole_number(option, text, 1);
  if (value > 1000000) throw UsageError(option + " is " + text + "; allowed: 1 to 1000000");
  return static_cast<int>(value);
}

const std::string& not_empty(const std::string& option, const std::string& text) {
  if (text.empty()) throw UsageError(option + " is ''; allowed: a name");
  return text;
}

void check_sweep(const CompareOptions& options) {
  if (options.sweep_name.empty()) return;
  const SizeOptions& sizes = options.problem.sizes;
  const bool lengths = options.sweep_name == "seq" && (sizes.seq_q || sizes.seq_k);
  if (lengths || sizes.*swept_size(options.sweep_name)) {
    throw UsageError("--sweep " + options.sweep_name + " and an option for the same size are both given; allowed: one of them");
  }
}

}  // namespace

CompareCommand parse_compare_options(int argc, const char* const* argv) {
  CompareCommand command;
  CompareOptions& options = command.options;
  options.problem.causal = true;
  options.problem.dtype = Dtype::fp32;  // one for all rows: stages differ in what they take
  bool no_causal = false;

  CLI::App app(
      "compare: runs all stages on one problem and prints one table for the forward and one for the backward pass.\n"
      "On a GPU it times them; on the CPU simulator it counts.\n"
      "Without --dtype it compares fp32; stages that do not take the dtype are left out, and named.\n"
      "Exit codes: 0 good; 1 a check failed; 2 bad usage or nothing to run; 3 no usable device or not enough memory.",
      "compare");
  app.set_version_flag("--version", std::string("compare (flash-steps " FLASH_VERSION ")"));
  app.set_help_flag("--help,-h", "Print this and exit");
  const auto text_option = [&](const char* name, const char* type, const char* text, auto&& use) {
    app.add_option_function<std::string>(name, use, text)->type_name(type);
  };
  text_option("--only", "LIST", "Stages, such as 02,03", [&](const std::string& given) {
    options.only = split_at_commas("--only", given, "stage numbers such as 02,03");
  });
  text_option("--variant", "LIST", "Variants, such as loop_order,warp_tiled", [&](const std::string& given) {
    options.variants = split_at_commas("--variant", given, "names of variants, as the stages' --list has them");
  });
  text_option("--pass", "forward|backward", "One pass alone (default: both)",
              [&](const std::string& given) { options.passes = {parse_choice("--pass", given, all_passes)}; });
  text_option("--sweep", "NAME=FIRST..LAST", "One table for each size, doubling; NAME is seq, batch, heads or d",
              [&](const std::string& given) { parse_sweep(given, options); });
  text_option("--device", "auto|gpu|cpu", "auto: a GPU if one works, else the CPU simulator (default: auto)",
              [&](const std::string& given) { options.device = parse_choice("--device", given, all_devices); });
  text_option("--iterations", "N", "Timed iterations on a GPU (default: 20)",
              [&](const std::string& given) { options.iterations = parse_count("--iterations", given); });
  text_option("--time-limit", "SECONDS", "A run that takes longer is stopped (default: 600)",
              [&](const std::string& given) { options.time_limit = std::chrono::seconds(parse_count("--time-limit", given)); });
  text_option("--bin", "DIR", "Folder of the stage programs (default: where this program lies)",
              [&](const std::string& given) { options.bin = not_empty("--bin", given); });
  app.add_flag("--json", options.json, "The rows as a JSON array on stdout instead of the tables");
  app.add_flag("--csv", options.csv, "The rows as CSV on stdout instead of the tables");
  text_option("--save", "FILE", "Also write the rows as JSON to this file, with commit, date and the kernels' blob ids",
              [&](const std::string& given) { options.save = not_empty("--save", given); });
  add_problem_options(app, options.problem);
  app.add_flag("--no-causal", no_causal, "Every query sees every key (the default here is --causal)")->group("Problem");

  command.answer = parse_command_line(app, argc, argv);
  if (!command.answer.empty()) return command;
  if (app.count("--causal") > 0 && no_causal) throw UsageError("--causal and --no-causal are both given; allowed: one of them");
  if (options.json && options.csv) throw UsageError("--json and --csv are both given; allowed: one of them");
  if (no_causal) options.problem.causal = false;
  check_contradictions(options.problem);
  check_sweep(options);
  return command;
}

std::vector<RequestedSizes> sizes_to_run(const CompareOptions& options, Backend backend) {
  // On the simulator all stages together should take seconds; a GPU needs more work than that to be busy.
  RequestedSizes defaults;
  if (backend == Backend::gpu) {
    defaults = {.batch = 8, .heads = 12, .kv_heads = 0, .seq_q = 1024, .seq_k = 1024, .head_dim = 64};
  } else {
    defaults = {.batch = 1, .heads = 2, .kv_heads = 0, .seq_q = 256, .seq_k = 256, .head_dim = 64};
  }
  if (options.sweep_name.empty()) return {options.problem.sizes.over(defaults)};
  std::vector<RequestedSizes> all;
  for (const std::int64_t value : options.sweep_values) {
    SizeOptions sizes = options.problem.sizes;
    sizes.*swept_size(options.sweep_name) = value;
    all.push_back(sizes.over(defaults));
  }
  return all;
}

}  // namespace flash
