// The part of the command line that describes a problem. The stage programs and the comparison program share it.
#pragma once

#include "common/attention/problem.hpp"
#include "common/harness/inputs.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace flash {

// The values that an option or a saved row may have.
inline constexpr Pass all_passes[]{Pass::forward, Pass::backward};
inline constexpr Dtype all_dtypes[]{Dtype::fp32, Dtype::fp16, Dtype::bf16};
inline constexpr Layout all_layouts[]{Layout::bhnd, Layout::bnhd, Layout::qkv, Layout::kv};
inline constexpr BiasKind all_biases[]{BiasKind::none, BiasKind::vector, BiasKind::matrix, BiasKind::alibi};
inline constexpr Score all_scores[]{Score::dot, Score::lorentz};
inline constexpr Values all_values[]{Values::tangent, Values::centroid};

/// Sizes as given; an absent one takes its default, or comes from the files of --load.
struct SizeOptions {
  std::optional<std::int64_t> batch, heads, kv_heads, seq, seq_q, seq_k, head_dim;

  /// Absent sizes take those of `defaults`; kv_heads follows the query heads.
  RequestedSizes over(const RequestedSizes& defaults) const;
};

struct ProblemOptions {
  SizeOptions sizes;
  bool causal = false;
  Window window;
  float softcap = 0.0f;  ///< 0: none
  Sequences sequences;   ///< empty: the batch is not ragged
  Dropout dropout = {};
  std::optional<BiasKind> bias;
  bool bias_gradient = false;
  Score score = Score::dot;
  Values values = Values::tangent;
  std::optional<float> scale;  ///< absent: 1/sqrt(d)
  std::optional<Dtype> dtype;  ///< absent: the first that the variant takes
  Layout layout = Layout::bhnd;
  InputKind input = InputKind::normal;
  std::uint64_t seed = 1;
};

/// Adds --batch ... --seed to `app`. Parsing fills `options`; a bad value or a contradiction is a UsageError. What stands in
/// `options` already is the default; that of the sizes is told only: `on_cpu` and `on_gpu`.
void add_problem_options(CLI::App& app, ProblemOptions& options, const RequestedSizes& on_cpu, const RequestedSizes& on_gpu);

/// UsageError for options that contradict each other, such as --seq with --seq-q.
void check_contradictions(const ProblemOptions& options);

/// The problem, validated; the lengths of a ragged batch are those of its sequences. UsageError: one line that says what was given and
/// what is allowed.
FullProblem make_problem(const ProblemOptions& options, const RequestedSizes& sizes);

/// The options as command-line arguments with every size spelled out, to hand a problem on to another program.
std::vector<std::string> to_arguments(const ProblemOptions& options, const RequestedSizes& sizes);

}  // namespace flash
