// Makes the problems that stages are tested on.
#pragma once

#include "common/attention/problem.hpp"

#include <initializer_list>
#include <string>
#include <vector>

namespace flash::grid {

/// A problem with everything not named at its default; scale = 1/sqrt(d), in the first dtype of the stage.
struct Shape {
  int B = 1, H = 2, Hkv = 2, Nq = 64, Nk = 64, d = 32;
};
FullProblem problem_of(const Shape&);

/// The problem of a stage program's options, "--seq-q 3 --causal", in the first dtype of the stage.
FullProblem parsed(const std::string& options);

/// Those of the same options and some more.
std::vector<FullProblem> all_of(const std::string& options, std::initializer_list<const char*> more);

/// The gradient of a bias of each extent that may be 1, with masks, windows, a softcap, dropout, grouped heads.
std::vector<FullProblem> bias_gradients();

/// Is this a build with a sanitizer, where a kernel's thread is ten to a hundred times slower?
bool sanitized();

/// The problems, or under a sanitizer fewer and smaller ones: it finds the same at any size.
std::vector<FullProblem> affordable(const std::vector<FullProblem>&);

/// The problems, or under a sanitizer only the first: what is counted does not depend on it. Let the first be small.
std::vector<FullProblem> counted(std::vector<FullProblem> problems);

}  // namespace flash::grid
