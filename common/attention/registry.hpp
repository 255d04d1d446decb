// The variants of the running stage: what each takes, refuses and needs, and which of them a problem gets if nobody names one.
#pragma once

#include "common/attention/cost.hpp"
#include "common/attention/option_table.hpp"
#include "common/attention/tensor_table.hpp"
#include "common/attention/variant.hpp"

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace flash {

/// The buffers that a pass of the problem needs besides its tensors: copies, padded with zeros, where d is no multiple of Variant::row_multiple,
/// and the variant's own.
std::vector<WorkspaceSpec> workspaces_of(const Variant&, const FullProblem&, Pass);

/// "" or why the variant takes a problem on no device: what it does not know, its dtypes, its largest head dimension, its own refusal; or
/// why on no device of such limits.
std::string refusal(const Variant&, const FullProblem&, const std::optional<DeviceLimits>& = {});

/// "" or why it cannot run the pass of the problem on such a device: it has no such pass, its refusal(), or its tiles do not fit.
std::string why_it_cannot_run(const Variant&, const FullProblem&, Pass, const DeviceLimits&);

/// What a launch of the pass gets besides its tensors on such a device, the same for whoever launches it.
struct PassPlan {
  TileChoice choice;                      ///< of no rows: the variant has none
  std::vector<WorkspaceSpec> workspaces;  ///< workspaces_of()
  std::vector<int> offsets, order;        ///< of a ragged batch, else empty: what Attention's tensors of these names hold
};

/// `tiles`: by default the variant's. UsageError if these are none of its choices; DeviceError if none fits the device.
PassPlan plan_pass(const Variant&, const FullProblem&, Pass, const DeviceLimits&, std::optional<Tiles> = {});

/// "64,32", as --tiles takes it.
std::string to_string(const Tiles&);

/// What the pass does, with traffic in bytes, for these tiles or the variant's default; empty if there is no formula.
Prediction predict(const Variant&, const FullProblem&, Pass, const DeviceLimits&, std::optional<Tiles> = {});

/// Has it the pass, and not by another step's forward pass?
bool has_own_pass(const Variant&, Pass);

/// Launches the pass, of a backward one without its forward, and the copies before and after it.
void launch_pass(const Variant&, const Attention&, Pass);

/// Of an error: the exit code, 2 for a UsageError, 3 for a DeviceError or too little memory, 1 for anything else; and what to tell the user.
std::pair<int, std::string> code_and_message(const std::exception&);

/// The variants of the running stage for one backend, in the order of their steps; empty for gpu in a CPU-only build.
/// Filled by the source that add_stage() generates for the stage. UsageError if two have the same name.
const std::vector<Variant>& variants(Backend);

/// The one of that name; UsageError if there is none.
const Variant& variant_named(Backend, std::string_view name);

/// The one that is the fastest for the pass of the problem and can run it on such a device; null if none says so. If several do: the
/// first that is only for some problems, else the last, since a later step knows the earlier ones.
const Variant* fastest_variant(Backend, const FullProblem&, Pass, const DeviceLimits&);

/// What runs the pass of the problem on such a device: the variant of that name; where nobody names one, on a GPU the fastest, else of those for
/// general use the last that can, else the last of the others. If it cannot, an error in one line that says why, and who can: a DeviceError if the
/// same could run on another device, else a UsageError. `deterministic`: none whose dQ differs between runs; on a GPU those for some problems then
/// come first, since Hopper's are among them, and last of all those that take turns.
const Variant& choose_variant(Backend, const std::string& name, const FullProblem&, Pass, const DeviceLimits&,
                              bool deterministic = false);

struct Registration {
  const Variant* variant;
  const char* file = "";
  Predict predict = nullptr;
  CopyRows copy_rows = nullptr;
  std::vector<const Variant*> forward{};  ///< where a step without a forward pass of its own finds one
};

/// Adds variants when the program starts. They are read in main() at the earliest, since they may be initialised after this.
struct RegisterVariants {
  RegisterVariants(Backend, const std::vector<Registration>&);
};

}  // namespace flash
