#include "common/harness/command_line.hpp"

#include "common/harness/text.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/error.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <sstream>
#include <string_view>

extern char** environ;

namespace flash {
namespace {

constexpr std::size_t help_column = 30;  // where CLI11 starts the texts

struct Variable {
  const char *name, *values, *text;
};

constexpr Variable variables_read[]{
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

/// Those of common/check_gpu.sh, of common/run and of the package flash-attn are left alone.
void check_environment() {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view setting = *entry, name = setting.substr(0, setting.find('='));
    const auto starts = [&](const char* prefix) { return name.starts_with(prefix); };
    constexpr const char* others[] = {"FLASH_CHECK_", "FLASH_RUN_", "FLASH_ATTENTION_", "FLASH_ATTN_"};
    if (!starts("FLASH_") || std::ranges::any_of(others, starts)) continue;
    if (std::ranges::find(variables_read, name, &Variable::name) == std::end(variables_read))
      throw UsageError("the environment variable " + std::string(name) + " is unknown; --help lists those that are read");
  }
  simt::options();  // looks at their values
}

/// CLI11's help without lines longer than a terminal's, and the environment. From 2.5 on CLI11 wraps lines itself, at other columns.
std::string help_of(const CLI::App& app) {
  const auto keep_lines_whole = [](auto& formatter) {
    constexpr std::size_t no_limit = 1 << 20;
    if constexpr (requires { formatter.right_column_width(no_limit); }) {
      formatter.right_column_width(no_limit);
      formatter.description_paragraph_width(no_limit);
    }
  };
  keep_lines_whole(*app.get_formatter());
  std::string unwrapped = app.help() + "\nEnvironment:\n";
  for (const auto& [name, values, text] : variables_read)
    unwrapped += std::string("  ") + name + "=" + values + "\n" + std::string(help_column, ' ') + text + "\n";
  std::istringstream lines(unwrapped);
  std::string help;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t indent = line.starts_with("  ") ? help_column : 0;
    line.erase(line.find_last_not_of(' ') + 1);
    if (!line.empty() || !help.ends_with("\n\n")) help += wrapped(line, indent) + "\n";
  }
  return help;
}

template <Enumeration Enum>
void add_choice(CLI::App& app, const char* name, auto& target, const std::string& help) {
  const std::vector<std::string> all(value_names<Enum>.begin(), value_names<Enum>.end());
  const auto use = [&target, all](const std::string& text) {
    target = static_cast<Enum>(std::ranges::find(all, text) - all.begin());
  };
  app.add_option_function<std::string>(name, use, help)
      ->type_name(joined(value_names<Enum>, std::identity(), "|"))
      ->check(CLI::IsMember(all).description(""));
}

void add_problem_options(CLI::App& app, GivenOptions& given) {
  const FullProblem usual;
  for (const ProblemOption& option : problem_options()) {
    const std::string name = option.name;
    if (holds<bool>(option)) {
      app.add_flag_function(
             name, [&given, name](std::int64_t count) { given[name] = count > 0 ? "true" : "false"; }, option.help)
          ->check(CLI::IsMember({"true", "false"}).description(""))
          ->group("Problem");
      continue;
    }
    const std::string fallback = option.traits.default_text != nullptr ? option.traits.default_text : value_text(option, usual);
    app.add_option_function<std::string>(
           name, [&given, name](const std::string& value) { given[name] = value; },
           option.help + (" (default: " + fallback + ")"))
        ->type_name(values_text(option))
        ->group("Problem");
  }
  app.add_option_function<std::string>(
         "--seq", [&](const std::string& n) { given["--seq-q"] = given["--seq-k"] = n; },
         "As many queries as keys (default: 128)")
      ->type_name("N")
      ->excludes("--seq-q")
      ->excludes("--seq-k")
      ->group("Problem");
}

std::string not_empty(const std::string& text) { return text.empty() ? "a name is missing" : ""; }

void add_options(CLI::App& app, Request& request, std::vector<int>& tiles) {
  app.add_flag("--list", request.list, "List the variants and exit; with --json as JSON");
  add_choice<Pass>(app, "--pass", request.pass,
                   "Which pass to run; backward runs its own forward first (default: the variant's, forward if it has both)");
  app.add_option("--variant", request.variant,
                 "Which kernel file to run, as in --list (default: on a GPU the fastest, in the simulator the last)")
      ->type_name("NAME")
      ->check(not_empty, "");
  add_problem_options(app, request.problem);
  app.add_option("--load", request.load,
                 "Read q.npy, k.npy, v.npy and, if present, do.npy and bias.npy (NumPy; C order; float16, 32 or 64; shapes "
                 "(B,H,N,d)). The shape comes from the files")
      ->type_name("DIR")
      ->check(CLI::ExistingDirectory.description(""))
      ->excludes("--input");
  app.add_option("--save", request.save,
                 "Write o.npy, lse.npy and with backward dq.npy, dk.npy, dv.npy and, if asked for, dbias.npy (float32); "
                 "earlier ones are replaced")
      ->type_name("DIR")
      ->check(not_empty, "");
  add_choice<DeviceChoice>(app, "--device", request.device, "auto: a GPU if one works, else the CPU simulator (default: auto)");
  app.add_option("--tiles", tiles,
                 "Rows of Q and of K, V that a block works on: one of the compiled sizes of the variant (--list shows them)")
      ->option_text("Br,Bc")
      ->delimiter(',')
      ->expected(2);
  app.add_flag("--bench", request.bench, "Time the kernels (GPU only)");
  app.add_option("--iterations", request.iterations, "Timed iterations of --bench (default: 20)")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000).description(""))
      ->needs("--bench");
  app.add_flag_callback(
      "--no-check", [&] { request.check = false; }, "Skip the comparison with the reference");
  app.add_flag_callback(
      "--no-watch", [&] { request.watch = false; }, "On the CPU: skip the second run, which looks for races");
  app.add_flag("--json", request.json, "One JSON object on stdout instead of the report");
}

}  // namespace

Request parse_command_line(const StageInfo& stage, int argc, const char* const* argv) {
  Request request;
  CLI::App app(
      stage.name + ": " + stage.idea +
          "\nRuns one attention problem, checks it against double precision and prints a report.\nExit codes: 0 good; 1 "
          "the check failed; 2 bad usage or input; 3 no usable device or not enough memory.",
      stage.name);
  app.set_version_flag("--version", stage.name + " (flash-steps " FLASH_VERSION ")");
  app.set_help_flag("--help,-h", "Print this and exit");
  std::vector<int> tiles;
  add_options(app, request, tiles);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    request.answer = help_of(app);
  } catch (const CLI::CallForVersion& version) {
    request.answer = version.what() + std::string("\n");
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + "; --help lists the options");
  } catch (const std::logic_error&) {  // of a flag's value, which CLI11 does not expect to be wrong
    throw UsageError("a flag has another value than true or false; --help lists the options");
  }
  if (!tiles.empty()) request.tiles = Tiles{tiles.front(), tiles.back()};
  if (request.answer.empty()) check_environment();
  return request;
}

int exit_code_of(const std::string& program, const std::function<int()>& work) try {
  return work();
} catch (const std::exception& error) {
  const auto& [code, message] = code_and_message(error);
  std::cerr << program << ": " << one_line(message) << std::endl;
  return code;
}

}  // namespace flash
