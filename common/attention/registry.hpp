// The variants of the running stage: what each takes, refuses and needs, and which of them a problem gets if nobody names one.
#pragma once

#include "common/attention/placement.hpp"
#include "common/attention/prediction.hpp"
#include "common/attention/variant.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// Where d is no multiple of Variant::row_multiple, kernels run on copies of the tensors, padded with zeros. The problem as they see it: a wider d, and each tensor by itself; the same problem if its rows fit.
FullProblem padded(const Variant&, FullProblem);

/// The copies that launch_pass() makes of the tensors of such a problem; none if its rows fit.
std::vector<WorkspaceSpec> padded_copies(const Variant&, const FullProblem&, Pass);

/// Launches the pass, of a backward one without its forward, and the copies before and after it.
void launch_pass(const Variant&, const Attention&, Pass);

/// Adds the traffic of these copies to that of the kernels, in elements.
void add_copies(Prediction&, const Variant&, const FullProblem&, Pass);

/// The variants of the running stage for one backend, in the order of their file numbers; empty for gpu in a CPU-only build.
/// Filled by the source that add_stage() generates for the stage.
const std::vector<Variant>& variants(Backend);

/// The one of that name; null if there is none.
const Variant* find_variant(Backend, std::string_view name);

/// The one that is the fastest for the pass of the problem and can run it on such a device; null if none says so. If several do: the
/// first that is only for some problems, else the last, since a later step knows the earlier ones.
const Variant* fastest_variant(Backend, const FullProblem&, Pass, const DeviceLimits&);

/// The one that runs the pass of the problem on such a device where nobody names one: on a GPU the fastest; else of those for general use the last
/// that can; else of the others the last that can. Null: none can. `same_bits`: none whose dQ differs between runs; on a GPU those for some
/// problems then come first, since Hopper's are among them, and last of all those that take turns.
const Variant* best_variant(Backend, const FullProblem&, Pass, const DeviceLimits&, bool same_bits = false);

/// "" or which two kernel files have given their variants the same name, so that nobody could choose the second.
std::string name_clash(Backend);

/// Adds a variant when the program starts. It is read in main() at the earliest, since it may be initialised after this.
struct RegisterVariant {
  RegisterVariant(Backend, int number, const Variant&, const char* file = "", Predict = nullptr, CopyRows = nullptr);
  RegisterVariant(Backend, int, Variant&&, const char* = "", Predict = nullptr, CopyRows = nullptr) = delete;
};

}  // namespace flash
