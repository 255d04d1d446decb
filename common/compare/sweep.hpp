// The problems of a sweep: every combination of the values that --sweep gives.
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

struct SweepOptions {
  std::vector<Sweep> sweeps;                  ///< the first one outermost
  std::optional<std::int64_t> tokens, width;  ///< batch = tokens / Nq, heads = width / d, at least 1

  bool over(const std::string& name) const;  ///< is there a sweep of this name?
};

/// One problem to run, with the options that hand it on to a stage program.
struct Case {
  ProblemOptions options;
  RequestedSizes sizes;
  Problem problem;
};

/// "seq=128..16384" (128, 256, ... up to 16384), "d=64,128", "causal=no,yes" or "dtype=fp16,bf16". UsageError with what is allowed.
Sweep parse_sweep(const std::string& text);

/// UsageError if a size is given twice: by two sweeps, by a sweep and an option of its own, by --tokens or --width and either.
void check_sweeps(const SweepOptions&, const SizeOptions&, bool causal_given, bool dtype_given);

/// All problems; one without a sweep. Sizes that nobody gave are those of `defaults`. UsageError if one of them is not allowed.
std::vector<Case> all_cases(const ProblemOptions&, const SweepOptions&, const RequestedSizes& defaults);

}  // namespace flash
