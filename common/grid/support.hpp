// Shared by the tests of a stage: the device under test, checked runs, and predictions held to the simulator's exact counts.
#pragma once

#include "common/attention/registry.hpp"
#include "common/attention/tensor_table.hpp"
#include "common/harness/inputs.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/device.hpp"
#include "common/reference/reference.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace flash::grid {

/// The device that this test program was asked to use: --device=cpu (the default) or --device=gpu.
Device& device();

/// The variant that this test program was asked to look at, --variant=NAME or its file; "": all.
const std::string& only_variant();

/// The stage's variants compiled for that device, or the only one asked for.
const std::vector<Variant>& variants();

/// Those that know all that the problem has (Variant::takes). Says once what each other one is not tested on, if it was asked for or knows less
/// than every kernel of the stages does.
std::vector<Variant> variants_for(const FullProblem&);

/// The variant of that name, asked for or not.
const Variant& variant_named(std::string_view name);

/// One run: outputs and workspaces poisoned before, results fetched after.
Results<float> run(const Variant&, const FullProblem&, const Inputs&, Pass);

/// One line on each tensor that failed, with its worst element; "" if the report passed.
std::string failures(const CheckReport&);

/// Reports to doctest what of the variant's results the reference does not agree with.
void expect_passed(const CheckReport&, const Variant&, const FullProblem&);

/// run(), whose results are to agree with the reference.
Results<float> checked_run(const Variant&, const FullProblem&, const Inputs&, Pass);

/// Has the stage so many variants that on the simulator each problem is run by some of them? A GPU has time for all.
bool has_many_variants();

/// Runs every variant on every problem (backward where it has one, which checks the forward outputs too) with random normal
/// inputs, or others, and reports to doctest each disagreement with the reference and, on the simulator, each count that is not
/// as predicted. Each third problem also in the stage's other dtypes.
/// by_thirds: if has_many_variants(), a third of the variants run a problem, and each variant runs a third of the problems; under a sanitizer a sixth.
/// predictable: not if scores are so large that a lazy step computes tiles twice, which no formula knows.
void check_variants_on(const std::vector<FullProblem>&, bool by_thirds = false, InputKind = InputKind::normal,
                       bool predictable = true);

/// The problems, and each third of them in the other dtypes of the stage. What a dtype changes in a kernel is little, and the same
/// everywhere.
std::vector<FullProblem> in_all_dtypes(const std::vector<FullProblem>&);

/// Runs every compiled tile size of every variant on every problem, like check_variants_on(), in the problem's dtype alone.
void check_every_tile_on(const std::vector<FullProblem>&);

/// Is `again` what a second run must give? The same to the last bit, except dQ where the variant sums it by atomics: that has to
/// pass the check.
bool repeats(const Variant&, const Checker&, const Results<float>& first, Results<float> again);

/// Reports to doctest each count of one run of the pass alone, with these tiles or the default, that differs from Variant::predict: the bytes
/// of each tensor, and sectors, barriers and warp operations where they have a formula. The stage's predicted.hpp has to know the kernel, unless
/// that is in more/ or tried alone.
void check_counts(const Variant&, const FullProblem&, Pass, std::optional<Tiles>, const Counters&);

/// The same of a run on the simulator that nothing else needs.
void check_prediction(const Variant&, const FullProblem&, Pass, std::optional<Tiles> = {});

using simt::Simulated;

inline FullProblem causal(FullProblem p) {
  p.causal = true;
  return p;
}

inline FullProblem with_bias(FullProblem p, BiasKind kind) {
  p.bias = kind;
  return p;
}

inline FullProblem scaled(FullProblem p, float scale) {
  p.scale = scale;
  return p;
}

}  // namespace flash::grid
