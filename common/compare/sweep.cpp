#include "common/compare/sweep.hpp"

#include "common/attention/limits.hpp"
#include "common/harness/parse.hpp"

#include <algorithm>
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

std::vector<std::int64_t> sizes_of(const std::string& option, const std::string& values, std::int64_t most) {
  std::vector<std::int64_t> sizes;
  const std::size_t dots = values.find("..");
  if (dots == std::string::npos) {
    for (const std::string& part : parts_of(values)) sizes.push_back(parse_whole_number(option, part, 1, most));
    return sizes;
  }
  const std::int64_t first = parse_whole_number(option, values.substr(0, dots), 1, most);
  const std::int64_t last = parse_whole_number(option, values.substr(dots + 2), first, most);
  for (std::int64_t value = first;; value *= 2) {
    sizes.push_back(value);
    if (value > last / 2) return sizes;
  }
}

bool yes_or_no(const std::string& option, const std::string& text) {
  if (text != "yes" && text != "no") throw UsageError(option + " is '" + text + "'; allowed: no, yes");
  return text == "yes";
}

/// UsageError if a value is there twice: its rows could not be told apart.
template <class Value>
void check_different(const std::string& text, std::vector<Value> values) {
  std::sort(values.begin(), values.end());
  if (std::adjacent_find(values.begin(), values.end()) != values.end()) {
    throw UsageError("--sweep is '" + text + "', which has a value twice; allowed: different values");
  }
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
  const std::string values = text.substr(equals + 1), option = "--sweep " + name;
  Sweep sweep{name, {}};
  if (size != nullptr) {
    const std::vector<std::int64_t> sizes = sizes_of(option, values, name == "d" ? largest_head_dim : largest_size);
    check_different(text, sizes);
    for (const std::int64_t value : sizes) {
      sweep.settings.emplace_back([=](ProblemOptions& options) { options.sizes.*size = value; });
    }
    return sweep;
  }
  const std::vector<std::string> words = parts_of(values);
  check_different(text, words);
  for (const std::string& word : words) {
    if (name == "causal") {
      const bool causal = yes_or_no(option, word);
      sweep.settings.emplace_back([=](ProblemOptions& options) { options.causal = causal; });
    } else {
      const Dtype dtype = parse_choice(option, word, all_dtypes);
      sweep.settings.emplace_back([=](ProblemOptions& options) { options.dtype = dtype; });
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
    if (all.size() * one.settings.size() > most_cases) {
      throw UsageError("the sweeps together have " + std::to_string(all.size() * one.settings.size()) +
                       " problems or more; allowed: up to " + std::to_string(most_cases));
    }
    std::vector<ProblemOptions> longer;
    for (const ProblemOptions& before : all) {
      for (const auto& set : one.settings) set(longer.emplace_back(before));
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
