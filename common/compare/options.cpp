#include "common/compare/options.hpp"

#include "common/compare/plan.hpp"
#include "common/harness/parse.hpp"

#include <CLI/CLI.hpp>

#include <filesystem>

namespace flash {
namespace {

/// The names between the commas of a list, at least one.
std::vector<std::string> names_in(const std::string& option, const std::string& list, const char* example) {
  std::vector<std::string> names = split_at_commas(list);
  std::erase(names, "");
  if (names.empty()) throw UsageError(option + " is '" + list + "'; allowed: " + example);
  return names;
}

void add_run_options(CLI::App& app, CompareOptions& options) {
  add_text(app, "--only", "LIST",
           "Stages, such as 02,03; peer: torch's attention by each of its backends (needs python3, torch and a GPU). Default: "
           "all stages",
           [&](const std::string& given) {
             options.only = names_in("--only", given, "stage numbers such as 02,03");
             options.peers = std::erase(options.only, peers_name) > 0;
             options.stages = !options.only.empty();
           });
  add_text(app, "--variant", "LIST", "Variants, such as loop_order,tuned; last: of each stage and pass the last",
           [&](const std::string& given) {
             options.variants = names_in("--variant", given, "names of variants, as the stages' --list has them");
             options.last = options.variants == std::vector<std::string>{"last"};
             if (options.last) options.variants.clear();
           });
  add_text(app, "--pass", "forward|backward", "One pass alone (default: both)",
           [&](const std::string& given) { options.passes = {parse_choice("--pass", given, all_passes)}; });
  add_text(app, "--device", "auto|gpu|cpu", "auto: a GPU if one works, else the CPU simulator (default: auto)",
           [&](const std::string& given) { options.device = parse_choice("--device", given, all_devices); });
  add_text(app, "--iterations", "N", "Timed iterations on a GPU (default: 20)",
           [&](const std::string& given) { options.iterations = parse_int("--iterations", given, 1000000); });
  add_text(
      app, "--rounds", "N",
      "On a GPU: time all of them N times, in turns, stages and peers of a problem one after the other. A row then has the "
      "median of the rounds (default: 1)",
      [&](const std::string& given) { options.rounds = static_cast<std::size_t>(parse_int("--rounds", given, 1000)); });
  add_text(app, "--time-limit", "SECONDS", "A run that takes longer is stopped (default: 600)", [&](const std::string& given) {
    options.time_limit = std::chrono::seconds(parse_int("--time-limit", given, 1000000));
  });
  add_name(app, "--bin", "DIR", "Folder of the stage programs (default: where this program lies)", options.bin);
}

void add_output_options(CLI::App& app, CompareOptions& options) {
  app.option_defaults()->group("Output");
  app.add_flag("--wide", options.wide, "All columns; else those that fit 80 characters");
  add_name(
      app, "--save", "FILE",
      "Append each row to this file of JSON Lines as its run ends, with commit, date and hashes of the kernels. Of rows of "
      "the same run the latest holds. A file that holds anything else than rows is refused",
      options.save);
  app.add_flag("--resume", options.resume, "A run whose row is in that file, of the same code, is not run again")
      ->needs("--save");
}

}  // namespace

std::string parse_compare_options(int argc, const char* const* argv, CompareOptions& options) {
  ProblemSet& problems = options.problems;
  problems.problem.causal = true;
  problems.problem.dtype = Dtype::fp32;  // one for all rows: stages differ in what they take

  CLI::App app(
      "compare: runs all stages and prints one table for each problem and pass.\n"
      "On a GPU it times them; on the CPU simulator it counts.\n"
      "Without --dtype it compares fp32; stages that do not take the dtype are left\nout, and named.\n"
      "A sweep over lengths, head dimensions and masks, which may be interrupted (the\n"
      "same command with --resume goes on):\n"
      "  compare --sweep d=64,128 --sweep causal=no,yes --sweep seq=512,4096 \\\n"
      "          --tokens 16384 --width 2048 --save sweep.jsonl\n"
      "Torch's attention on the same problem, next to a stage's last steps:\n"
      "  compare --only 08,peer --variant last --dtype fp16 --rounds 3\n"
      "Exit codes: 0 good; 1 a check failed, or a variant crashed or finished no run\n"
      "within the time limit; 2 bad usage or nothing to run; 3 no usable device or not\nenough memory.",
      "compare");
  app.set_version_flag("--version", std::string("compare (flash-steps " FLASH_VERSION ")"));
  app.set_help_flag("--help,-h", "Print this and exit");
  const auto point_to = [&](const char* option, const char* instead) {  // what stages have and people try
    app.add_flag_callback(option, [=] { throw UsageError(std::string("unknown argument '") + option + "'; " + instead); })
        ->group("");
  };
  point_to("--tune", "a stage's program has it, such as 06_fa2_forward --tune");
  point_to("--json", "--save FILE writes the rows as JSON Lines");
  add_run_options(app, options);
  add_sweep_options(app, problems);
  add_output_options(app, options);
  add_problem_options(app, problems.problem, compared_sizes(Backend::cpu), compared_sizes(Backend::gpu));
  app.add_flag_callback(
         "--no-causal", [&] { problems.problem.causal = false; }, "Every query sees every key (default: --causal)")
      ->excludes("--causal")
      ->group("Problem");

  if (const std::string answer = parse_command_line(app, argc, argv); !answer.empty()) return answer;
  if (options.peers && options.device == DeviceChoice::cpu) {
    refuse_both("--only peer", "--device cpu", ", since peers run on a GPU");
  }
  check_problem_set(app, problems);
  return "";
}

}  // namespace flash
