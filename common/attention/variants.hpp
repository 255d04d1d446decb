// A variant as the program of its stage sees it: what it takes and refuses, and what it needs for it.
#pragma once

#include "common/attention/placement.hpp"
#include "common/attention/variant.hpp"

#include <optional>

namespace flash {

/// A stage: a folder with its program.
struct StageInfo {
  std::string name;            ///< folder name, "01_naive"
  std::string idea;            ///< one line for reports and the comparison table
  std::string backward_stage;  ///< the stage that has a backward pass, if this one has none
};

/// The buffers that a pass of the problem needs besides its tensors: the variant's own and padded copies.
std::vector<WorkspaceSpec> workspaces_of(const Variant&, const FullProblem&, Pass);

/// "" or why the variant takes a problem on no device: what it does not know, its dtypes, its largest head dimension, its own refusal.
std::string refusal(const Variant&, const FullProblem&);

/// "" or why it does not take the problem on such a device; where refusal() has something to say, that.
std::string refusal_on(const Variant&, const FullProblem&, const DeviceLimits&);

/// "" or why it cannot run the pass of the problem on such a device: it has no such pass, refusal_on(), or its tiles do not fit.
std::string cannot_run(const Variant&, const FullProblem&, Pass, const DeviceLimits&);

/// The same with traffic in bytes, for these tiles or the variant's default; empty if there is no formula.
Prediction predict(const Variant&, const FullProblem&, Pass, const DeviceLimits&, std::optional<Tiles> = {});

/// Whether it knows all that the problem has (Variant::takes), and is for such problems (Variant::needs).
bool knows(const Variant&, const FullProblem&);

}  // namespace flash
