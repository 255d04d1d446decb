// The problems to run: one, or those of a sweep, which are every combination of the values that --sweep gives.
#pragma once

#include "common/harness/problem_options.hpp"

#include <optional>
#include <string>
#include <vector>

namespace flash {

/// One --sweep.
struct Sweep {
  std::string name;  ///< "seq", "batch", "heads", "d", "causal" or "dtype"
  std::vector<std::string> values;
};

/// The problems of a command line.
struct ProblemSet {
  ProblemOptions problem;
  std::vector<Sweep> sweeps;                  ///< the first one outermost
  std::optional<std::int64_t> tokens, width;  ///< batch = tokens / Nq, heads = width / d, at least 1
};

/// One problem to run, with the options that hand it on to a stage program.
struct Case {
  ProblemOptions options;
  RequestedSizes sizes;
  FullProblem problem;
};

/// "a,b,,c" as "a", "b", "", "c".
std::vector<std::string> split_at_commas(const std::string& list);

/// UsageError: "--seq and --seq-q are both given; allowed: one of them", and `why`.
[[noreturn]] void refuse_both(const std::string& one, const std::string& other, const std::string& why = "");

/// "seq=512,1024", "d=64,128", "causal=no,yes" or "dtype=fp16,bf16". UsageError with what is allowed.
Sweep parse_sweep(const std::string& text);

/// Adds --sweep, --tokens and --width to `app`.
void add_sweep_options(CLI::App& app, ProblemSet&);

/// After the parse. UsageError if a size is given twice: by two sweeps, by a sweep and its own option, by --tokens or --width and either.
void check_problem_set(const CLI::App& app, const ProblemSet&);

/// All problems; one without a sweep. Sizes that nobody gave are those of `defaults`. UsageError if one of them is not allowed.
std::vector<Case> all_cases(const ProblemSet&, const RequestedSizes& defaults);

}  // namespace flash
