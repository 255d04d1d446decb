#include "common/compare/sweep.hpp"

#include "common/attention/limits.hpp"
#include "common/harness/parse.hpp"

#include <algorithm>
#include <set>
#include <sstream>

namespace flash {
namespace {

constexpr std::size_t most_cases = 10000;

using Size = std::optional<std::int64_t> SizeOptions::*;

/// The size that a sweep's name means; null for causal and dtype.
Size swept_size(const std::string& name) {
  if (name == "seq") return &SizeOptions::seq;
  if (name == "batch") return &SizeOptions::batch;
  if (name == "heads") return &SizeOptions::heads;
  if (name == "d") return &SizeOptions::head_dim;
  return nullptr;
}

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  if (list.empty() || list.back() == ',') parts.emplace_back();  // which no value is
  return parts;
}

std::int64_t largest(const std::string& name) { return name == "d" ? largest_head_dim : largest_size; }

/// Puts a value of a sweep into the options. UsageError if it is none.
void apply(ProblemOptions& options, const std::string& name, const std::string& value) {
  const std::string option = "--sweep " + name;
  if (const Size size = swept_size(name); size != nullptr) {
    options.sizes.*size = parse_whole_number(option, value, 1, largest(name));
  } else if (name == "dtype") {
    options.dtype = parse_choice(option, value, all_dtypes);
  } else {
    if (value != "yes" && value != "no") throw UsageError(option + " is '" + value + "'; allowed: no, yes");
    options.causal = value == "yes";
  }
}

/// FIRST..LAST.
std::vector<std::string> doubled(const std::string& name, const std::string& first, const std::string& last) {
  const std::string option = "--sweep " + name;
  const std::int64_t from = parse_whole_number(option, first, 1, largest(name));
  const std::int64_t to = parse_whole_number(option, last, from, largest(name));
  std::vector<std::string> values;
  for (std::int64_t value = from; value <= to; value *= 2) values.push_back(std::to_string(value));
  return values;
}

[[noreturn]] void given_twice(const std::string& one, const std::string& other) {
  throw UsageError(one + " and " + other + " are both given; allowed: one of them");
}

}  // namespace

bool SweepOptions::over(const std::string& name) const {
  return std::any_of(sweeps.begin(), sweeps.end(), [&](const Sweep& sweep) { return sweep.name == name; });
}

Sweep parse_sweep(const std::string& text) {
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string given = text.substr(0, equals), name = given == "head-dim" ? "d" : given;
  const Size size = swept_size(name);
  if (equals == text.size() || (size == nullptr && name != "causal" && name != "dtype")) {
    throw UsageError(
        "--sweep is '" + text +
        "'; allowed: NAME=FIRST..LAST or NAME=A,B,C with NAME seq, batch, heads or d; causal=no,yes; dtype=fp16,bf16");
  }
  const std::string list = text.substr(equals + 1);
  const std::size_t dots = size == nullptr ? std::string::npos : list.find("..");
  Sweep sweep{name, dots == std::string::npos ? parts_of(list) : doubled(name, list.substr(0, dots), list.substr(dots + 2))};
  ProblemOptions ignored;
  std::set<std::string> seen;
  for (const std::string& value : sweep.values) {
    apply(ignored, name, value);
    if (!seen.insert(value).second) {  // its rows could not be told apart
      throw UsageError("--sweep is '" + text + "', which has a value twice; allowed: different values");
    }
  }
  return sweep;
}

void check_sweeps(const SweepOptions& sweep, const SizeOptions& sizes, bool causal_given, bool dtype_given) {
  for (const Sweep& one : sweep.sweeps) {
    const std::string option = "--sweep " + one.name, own = one.name == "d" ? "--head-dim" : "--" + one.name;
    const auto same = [&](const Sweep& other) { return other.name == one.name; };
    if (std::count_if(sweep.sweeps.begin(), sweep.sweeps.end(), same) > 1) given_twice(option, "another " + option);
    if (one.name == "seq" && sizes.seq_q) given_twice(option, "--seq-q");
    if (one.name == "seq" && sizes.seq_k) given_twice(option, "--seq-k");
    if (const Size size = swept_size(one.name); size != nullptr && sizes.*size) given_twice(option, own);
    if (one.name == "causal" && causal_given) given_twice(option, "--causal or --no-causal");
    if (one.name == "dtype" && dtype_given) given_twice(option, own);
  }
  if (sweep.tokens && (sizes.batch || sweep.over("batch"))) given_twice("--tokens", sizes.batch ? "--batch" : "--sweep batch");
  if (sweep.width && (sizes.heads || sweep.over("heads"))) given_twice("--width", sizes.heads ? "--heads" : "--sweep heads");
}

std::vector<Case> all_cases(const ProblemOptions& options, const SweepOptions& sweep, const RequestedSizes& defaults) {
  std::vector<ProblemOptions> all{options};
  for (const Sweep& one : sweep.sweeps) {
    if (const std::size_t count = all.size() * one.values.size(); count > most_cases) {
      throw UsageError("the sweeps together have " + std::to_string(count) + " problems or more; allowed: up to " +
                       std::to_string(most_cases));
    }
    std::vector<ProblemOptions> longer;
    for (const ProblemOptions& before : all) {
      for (const std::string& value : one.values) apply(longer.emplace_back(before), one.name, value);
    }
    all = std::move(longer);
  }
  std::vector<Case> cases;
  for (ProblemOptions& each : all) {
    const RequestedSizes sizes = each.sizes.over(defaults);
    if (sweep.tokens) each.sizes.batch = std::max<std::int64_t>(1, *sweep.tokens / sizes.seq_q);
    if (sweep.width) each.sizes.heads = std::max<std::int64_t>(1, *sweep.width / sizes.head_dim);
    const RequestedSizes final_sizes = each.sizes.over(defaults);  // key/value heads follow the heads
    cases.push_back({each, final_sizes, make_problem(each, final_sizes)});
  }
  return cases;
}

}  // namespace flash
