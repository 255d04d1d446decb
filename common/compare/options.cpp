#include "common/compare/options.hpp"

#include "common/compare/plan.hpp"
#include "common/harness/parse.hpp"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <functional>
#include <sstream>
#include <utility>

namespace flash {
namespace {

constexpr DeviceChoice all_devices[]{DeviceChoice::automatic, DeviceChoice::gpu, DeviceChoice::cpu};

std::vector<std::string> split_at_commas(const std::string& option, const std::string& text, const char* example) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    if (!part.empty()) parts.push_back(part);
  }
  if (parts.empty()) throw UsageError(option + " is '" + text + "'; allowed: " + example);
  return parts;
}

const std::string& not_empty(const std::string& option, const std::string& text) {
  if (text.empty()) throw UsageError(option + " is ''; allowed: a name");
  return text;
}

/// Do both names mean one file, whether it exists or not?
bool same_file(const std::string& one, const std::string& other) {
  namespace fs = std::filesystem;
  std::error_code error;
  return fs::weakly_canonical(one, error) == fs::weakly_canonical(other, error);
}

using Use = std::function<void(const std::string&)>;

CLI::Option* text_option(CLI::App& app, const char* name, const char* type, const char* text, const Use& use) {
  return app.add_option_function<std::string>(name, use, text)->type_name(type);
}

void add_output_options(CLI::App& app, CompareOptions& options) {
  app.add_flag("--wide", options.wide, "All columns, however wide the terminal; else those that fit it, or 80 columns")
      ->group("Output");
  app.add_flag("--json", options.json, "The rows as a JSON array on stdout instead of the tables")->group("Output");
  app.add_flag("--csv", options.csv, "The rows as CSV on stdout instead of the tables")->group("Output");
  text_option(app, "--save", "FILE",
              "Also write the rows as JSON to this file, with commit, date and the kernels' blob ids; until all are there, to "
              "FILE.partial. A file that exists is replaced only if it holds rows",
              [&](const std::string& given) { options.save = not_empty("--save", given); })
      ->group("Output");
  app.add_flag("--resume", options.resume, "Go on with an interrupted --save: rows that still hold are not run again")
      ->group("Output");
  app.add_flag("--force", options.force, "--save may replace rows of a GPU by rows of the CPU, and rows of peers")
      ->group("Output");
  text_option(
      app, "--html", "FILE",
      "Also write a report for a browser: plots, tables, environment (needs python3). A file that exists is replaced only "
      "if it is such a report",
      [&](const std::string& given) { options.html = not_empty("--html", given); })
      ->group("Output");
  text_option(app, "--rows", "FILE,...", "Show saved rows instead of running anything", [&](const std::string& given) {
    options.rows = split_at_commas("--rows", given, "files of saved rows");
  })->group("Output");
}

/// --only peer means --peers, and no stage if it names none.
void take_peers(CompareOptions& options) {
  if (std::erase(options.only, peers_name) > 0) {
    options.peers = true;
    options.stages = !options.only.empty();
  }
  if (options.rounds > 1 && options.tune) throw UsageError("--rounds and --tune are both given; allowed: one of them");
  if (options.peers && options.tune) throw UsageError("--peers and --tune are both given; allowed: one of them");
  if (!options.peers || options.device != DeviceChoice::cpu) return;
  throw UsageError("--peers and --device cpu are both given; allowed: one of them, since peers run on a GPU");
}

/// Saved rows are shown as they are: an option for runs would seem to choose among them.
void check_rows_alone(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    const bool fits = name == "--rows" || name == "--wide" || name == "--json" || name == "--csv" || name == "--html";
    if (option->count() > 0 && !fits) {
      throw UsageError("--rows and " + name + " are both given; allowed beside --rows: --html, --wide, --json, --csv");
    }
  }
}

/// UsageError for options that cannot be meant together.
void check_combination(const CLI::App& app, const CompareOptions& options) {
  using Pair = std::pair<const char*, const char*>;
  for (const auto& [one, other] :
       {Pair{"--causal", "--no-causal"}, Pair{"--wide", "--json"}, Pair{"--wide", "--csv"}, Pair{"--json", "--csv"}}) {
    if (app.count(one) == 0 || app.count(other) == 0) continue;
    throw UsageError(std::string(one) + " and " + other + " are both given; allowed: one of them");
  }
  if (!options.rows.empty()) check_rows_alone(app);
  for (const char* of_gpu : {"--iterations", "--rounds", "--no-counts"}) {
    if (app.count(of_gpu) == 0 || options.device != DeviceChoice::cpu) continue;
    throw UsageError(std::string(of_gpu) +
                     " and --device cpu are both given; allowed: one of them, since it is for runs on a GPU");
  }
  for (const char* of_save : {"--resume", "--force"}) {
    if (app.count(of_save) == 0 || !options.save.empty()) continue;
    throw UsageError(std::string(of_save) + " is given without --save; allowed: both");
  }
  if (!options.html.empty() && !options.save.empty() && same_file(options.html, options.save)) {
    throw UsageError("--html and --save are both '" + options.save + "'; allowed: two files");
  }
}

}  // namespace

CompareCommand parse_compare_options(int argc, const char* const* argv) {
  CompareCommand command;
  CompareOptions& options = command.options;
  ProblemSet common;
  common.problem.causal = true;
  common.problem.dtype = Dtype::fp32;  // one for all rows: stages differ in what they take
  std::vector<std::string> problems;
  bool no_causal = false, no_counts = false;

  CLI::App app(
      "compare: runs all stages and prints one table for each problem and pass.\n"
      "On a GPU it times them; on the CPU simulator it counts.\n"
      "Without --dtype it compares fp32; stages that do not take the dtype are left\nout, and named.\n"
      "A sweep over lengths, head dimensions and masks, which may be interrupted (the\n"
      "same command with --resume goes on):\n"
      "  compare --sweep d=64,128 --sweep causal=no,yes --sweep seq=512..16384 \\\n"
      "          --tokens 16384 --width 2048 --save sweep.json\n"
      "Torch's attention on the same problems, beside the stages or alone:\n"
      "  compare --dtype fp16 --peers\n"
      "  compare --only peer --variant flash,cudnn --dtype fp16 --sweep seq=512..16384\n"
      "The fastest tile sizes of the last steps:\n"
      "  compare --tune --variant last --only 06,08 --sweep dtype=fp32,fp16 \\\n"
      "          --sweep d=64,128 --tokens 16384 --width 2048 --seq 4096 --save tuned.json\n"
      "A report of rows saved earlier, for a browser:\n"
      "  compare --rows sweep.json --html report.html\n"
      "Exit codes: 0 good; 1 a check failed, or a variant crashed or finished no run\n"
      "within the time limit; 2 bad usage or nothing to run; 3 no usable device or not\nenough memory.",
      "compare");
  app.set_version_flag("--version", std::string("compare (flash-steps " FLASH_VERSION ")"));
  app.set_help_flag("--help,-h", "Print this and exit");
  text_option(app, "--only", "LIST", "Stages, such as 02,03; peer: torch, as with --peers", [&](const std::string& given) {
    options.only = split_at_commas("--only", given, "stage numbers such as 02,03");
  });
  text_option(app, "--variant", "LIST", "Variants, such as loop_order,tuned; last: of each stage and pass the last",
              [&](const std::string& given) {
                options.variants = split_at_commas("--variant", given, "names of variants, as the stages' --list has them");
              });
  app.add_flag(
      "--peers", options.peers,
      "Also torch's attention, by each of its backends: flash, cudnn, memory_efficient, plain (needs python3, torch and a "
      "GPU)");
  text_option(app, "--pass", "forward|backward", "One pass alone (default: both)",
              [&](const std::string& given) { options.passes = {parse_choice("--pass", given, all_passes)}; });
  text_option(app, "--device", "auto|gpu|cpu", "auto: a GPU if one works, else the CPU simulator (default: auto)",
              [&](const std::string& given) { options.device = parse_choice("--device", given, all_devices); });
  app.add_flag("--tune", options.tune,
               "Time all compiled tile sizes of each variant that has a choice of them (--tune of the stages; on the simulator "
               "count), in place of the variants");
  text_option(app, "--iterations", "N", "Timed iterations on a GPU (default: 20)",
              [&](const std::string& given) { options.iterations = parse_int("--iterations", given, 1000000); });
  text_option(
      app, "--rounds", "N",
      "On a GPU: time all of them N times, in turns, stages and peers of a problem one after the other. A row then has the "
      "median of the rounds (default: 1)",
      [&](const std::string& given) { options.rounds = parse_int("--rounds", given, 1000); });
  app.add_flag("--no-counts", no_counts, "On a GPU: leave out the bytes, which the simulator takes seconds to count");
  text_option(
      app, "--time-limit", "SECONDS", "A run that takes longer is stopped, one that would is skipped (default: 600)",
      [&](const std::string& given) { options.time_limit = std::chrono::seconds(parse_int("--time-limit", given, 1000000)); });
  text_option(app, "--bin", "DIR", "Folder of the stage programs (default: where this program lies)",
              [&](const std::string& given) { options.bin = not_empty("--bin", given); });

  app.add_option_function<std::vector<std::string>>(
         "--problem",
         [&](const std::vector<std::string>& given) { problems.insert(problems.end(), given.begin(), given.end()); },
         "Options of a problem in one word, over those given beside it: \"--seq 4096 --head-dim 128\". Several are run one "
         "after the other")
      ->allow_extra_args(false)
      ->type_name("OPTIONS")
      ->group("Sweep");
  add_sweep_options(app, common.sweep);
  add_output_options(app, options);
  add_problem_options(app, common.problem, compared_sizes(Backend::cpu), compared_sizes(Backend::gpu));
  app.add_flag("--no-causal", no_causal, "Every query sees every key (default: --causal)")->group("Problem");

  command.answer = parse_command_line(app, argc, argv);
  if (!command.answer.empty()) return command;
  check_combination(app, options);
  if (no_causal) common.problem.causal = false;
  options.counts = !no_counts;
  check_contradictions(common.problem);
  const bool causal_given = app.count("--causal") + app.count("--no-causal") > 0, dtype_given = app.count("--dtype") > 0;
  check_sweeps(common.sweep, common.problem.sizes, causal_given, dtype_given);
  for (const std::string& text : problems) {
    options.problems.push_back(parse_problem(text, common, causal_given, dtype_given));
  }
  if (problems.empty()) options.problems.push_back(common);
  take_peers(options);
  if (options.variants == std::vector<std::string>{"last"}) {
    options.variants.clear();
    options.last = true;
  }
  return command;
}

}  // namespace flash
