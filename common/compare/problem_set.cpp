// Problems on the command line: sweeps, and those of --problem.
#include "common/compare/options.hpp"
#include "common/harness/parse.hpp"

#include <CLI/CLI.hpp>

#include <sstream>

namespace flash {

void add_sweep_options(CLI::App& app, SweepOptions& sweep) {
  app.add_option_function<std::vector<std::string>>(
         "--sweep",
         [&](const std::vector<std::string>& given) {
           for (const std::string& one : given) sweep.sweeps.push_back(parse_sweep(one));
         },
         "FIRST..LAST (doubling) or A,B,C of seq, batch, heads or d; causal=no,yes; dtype=fp16,bf16. Several make all "
         "combinations, the first outermost")
      ->allow_extra_args(false)  // one word after each --sweep
      ->type_name("NAME=VALUES")
      ->group("Sweep");
  const auto add_number = [&](const char* name, const char* type, std::optional<std::int64_t>& target, const char* text) {
    app.add_option_function<std::string>(
           name, [&target, name](const std::string& given) { target = parse_whole_number(name, given, 1); }, text)
        ->type_name(type)
        ->group("Sweep");
  };
  add_number("--tokens", "T", sweep.tokens, "Batch T / Nq (at least 1), so that each length has as many tokens");
  add_number("--width", "W", sweep.width, "W / d heads (at least 1), so that each head dimension has as wide a model");
}

ProblemSet parse_problem(const std::string& text, ProblemSet set, bool causal_given, bool dtype_given) {
  std::vector<const char*> argv{"--problem"};
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  for (const std::string& word : words) argv.push_back(word.c_str());
  CLI::App app("", "compare");
  app.set_help_flag("");
  bool no_causal = false;
  add_problem_options(app, set.problem, {}, {});
  app.add_flag("--no-causal", no_causal);
  add_sweep_options(app, set.sweep);
  try {
    if (words.empty()) throw UsageError("allowed: options of a problem");
    parse_command_line(app, static_cast<int>(argv.size()), argv.data());
    if (no_causal && app.count("--causal") > 0) throw UsageError("--causal and --no-causal are both given");
    if (no_causal) set.problem.causal = false;
    check_contradictions(set.problem);
    causal_given = causal_given || app.count("--causal") + app.count("--no-causal") > 0;
    check_sweeps(set.sweep, set.problem.sizes, causal_given, dtype_given || app.count("--dtype") > 0);
  } catch (const UsageError& wrong) {
    throw UsageError("--problem is '" + text + "': " + wrong.what());
  }
  return set;
}

}  // namespace flash
