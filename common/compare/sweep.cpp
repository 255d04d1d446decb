#include "common/compare/sweep.hpp"

#include "common/attention/limits.hpp"
#include "common/harness/parse.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <set>
#include <sstream>

namespace flash {
namespace {

using Size = std::optional<std::int64_t> SizeOptions::*;

/// The size that a sweep's name means; null for causal and dtype.
Size swept_size(const std::string& name) {
  if (name == "seq") return &SizeOptions::seq;
  if (name == "batch") return &SizeOptions::batch;
  if (name == "heads") return &SizeOptions::heads;
  if (name == "d") return &SizeOptions::head_dim;
  return nullptr;
}

/// Puts a value of a sweep into the options. UsageError if it is none.
void apply(ProblemOptions& options, const std::string& name, const std::string& value) {
  const std::string option = "--sweep " + name;
  if (const Size size = swept_size(name); size != nullptr) {
    options.sizes.*size = parse_whole_number(option, value, 1, name == "d" ? largest_head_dim : largest_size);
  } else if (name == "dtype") {
    options.dtype = parse_choice(option, value, all_dtypes);
  } else if (name == "causal") {
    if (value != "yes" && value != "no") throw UsageError(option + " is '" + value + "'; allowed: no, yes");
    options.causal = value == "yes";
  } else {
    throw UsageError("--sweep is '" + name +
                     "'; allowed: NAME=A,B,C with NAME seq, batch, heads or d; causal=no,yes; dtype=fp16,bf16");
  }
}

}  // namespace

std::vector<std::string> split_at_commas(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list + ",");
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

void refuse_both(const std::string& one, const std::string& other, const std::string& why) {
  throw UsageError(one + " and " + other + " are both given; allowed: one of them" + why);
}

Sweep parse_sweep(const std::string& text) {
  const std::size_t equals = std::min(text.find('='), text.size());
  const bool has_values = equals < text.size();
  Sweep sweep{text.substr(0, equals), split_at_commas(has_values ? text.substr(equals + 1) : "")};
  ProblemOptions ignored;
  std::set<std::string> seen;
  for (const std::string& value : sweep.values) {
    apply(ignored, sweep.name, value);
    if (!seen.insert(value).second) {  // its rows could not be told apart
      throw UsageError("--sweep is '" + text + "', which has a value twice; allowed: different values");
    }
  }
  return sweep;
}

void add_sweep_options(CLI::App& app, ProblemSet& set) {
  app.option_defaults()->group("Sweep");
  app.add_option_function<std::vector<std::string>>(
         "--sweep",
         [&](const std::vector<std::string>& given) {
           for (const std::string& one : given) set.sweeps.push_back(parse_sweep(one));
         },
         "A,B,C of seq, batch, heads or d; causal=no,yes; dtype=fp16,bf16. Several make all combinations, the first outermost")
      ->allow_extra_args(false)  // one word after each --sweep
      ->type_name("NAME=VALUES");
  const auto add_number = [&](const char* name, const char* type, std::optional<std::int64_t>& target, const char* text) {
    const auto parse = [&target, name](const std::string& given) { target = parse_whole_number(name, given, 1); };
    app.add_option_function<std::string>(name, parse, text)->type_name(type);
  };
  add_number("--tokens", "T", set.tokens, "Batch T / Nq (at least 1), so that each length has as many tokens");
  add_number("--width", "W", set.width, "W / d heads (at least 1), so that each head dimension has as wide a model");
}

void check_problem_set(const CLI::App& app, const ProblemSet& set) {
  check_contradictions(set.problem);
  std::set<std::string> given;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() > 0) given.insert(option->get_name());
  }
  const auto take = [&](const std::string& by, const std::vector<std::string>& options) {
    for (const std::string& option : options) {
      if (!given.insert(option).second) refuse_both(by, option);
    }
  };
  for (const Sweep& one : set.sweeps) {
    const std::string by = "--sweep " + one.name;
    if (one.name == "seq")
      take(by, {"--seq", "--seq-q", "--seq-k"});
    else if (one.name == "causal")
      take(by, {"--causal", "--no-causal"});
    else
      take(by, {one.name == "d" ? "--head-dim" : "--" + one.name});
  }
  if (set.tokens) take("--tokens", {"--batch"});
  if (set.width) take("--width", {"--heads"});
}

std::vector<Case> all_cases(const ProblemSet& set, const RequestedSizes& defaults) {
  std::vector<ProblemOptions> all{set.problem};
  for (const Sweep& one : set.sweeps) {
    std::vector<ProblemOptions> longer;
    for (const ProblemOptions& before : all) {
      for (const std::string& value : one.values) apply(longer.emplace_back(before), one.name, value);
    }
    all = std::move(longer);
  }
  std::vector<Case> cases;
  for (ProblemOptions& each : all) {
    const RequestedSizes sizes = each.sizes.over(defaults);
    if (set.tokens) each.sizes.batch = std::max<std::int64_t>(1, *set.tokens / sizes.seq_q);
    if (set.width) each.sizes.heads = std::max<std::int64_t>(1, *set.width / sizes.head_dim);
    const RequestedSizes final_sizes = each.sizes.over(defaults);  // key/value heads follow the heads
    cases.push_back({each, final_sizes, make_problem(each, final_sizes)});
  }
  return cases;
}

}  // namespace flash
