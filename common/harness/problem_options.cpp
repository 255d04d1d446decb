#include "common/harness/problem_options.hpp"

#include "common/attention/limits.hpp"
#include "common/harness/parse.hpp"

#include <CLI/CLI.hpp>

#include <charconv>

namespace flash {
namespace {

constexpr InputKind all_inputs[]{InputKind::normal, InputKind::ones, InputKind::identity, InputKind::ramp, InputKind::large};

/// An option of the group "Problem", whose value goes to `target` by way of `parse`.
template <class Target, class Parse>
void add(CLI::App& app, const std::string& name, const std::string& type, const std::string& text, Target& target,
         Parse parse) {
  const auto use = [name, &target, parse](const std::string& given) { target = parse(name, given); };
  app.add_option_function<std::string>(name, use, text)->type_name(type)->group("Problem");
}

void add_size(CLI::App& app, const std::string& name, std::optional<std::int64_t>& target, const std::string& text,
              const std::string& type) {
  const std::int64_t most = name == "--head-dim" ? largest_head_dim : largest_size;
  add(app, name, type, text, target,
      [most](const std::string& option, const std::string& given) { return parse_whole_number(option, given, 1, most); });
}

template <class Target, std::size_t count, class Enum>
void add_choice(CLI::App& app, const std::string& name, Target& target, const Enum (&allowed)[count], const std::string& text) {
  std::string list;
  for (const Enum value : allowed) list += (list.empty() ? "" : "|") + std::string(to_string(value));
  add(app, name, list, text, target,
      [&allowed](const std::string& option, const std::string& given) { return parse_choice(option, given, allowed); });
}

/// Digits that give back the same float.
std::string shortest(float value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

}  // namespace

RequestedSizes SizeOptions::over(const RequestedSizes& defaults) const {
  RequestedSizes sizes;
  sizes.batch = batch.value_or(defaults.batch);
  sizes.heads = heads.value_or(defaults.heads);
  sizes.kv_heads = kv_heads.value_or(sizes.heads);
  sizes.seq_q = seq_q.value_or(seq.value_or(defaults.seq_q));
  sizes.seq_k = seq_k.value_or(seq.value_or(defaults.seq_k));
  sizes.head_dim = head_dim.value_or(defaults.head_dim);
  return sizes;
}

void add_problem_options(CLI::App& app, ProblemOptions& options, const RequestedSizes& on_cpu, const RequestedSizes& on_gpu) {
  SizeOptions& sizes = options.sizes;
  const auto with_default = [&](const std::string& text, std::int64_t RequestedSizes::*size) {
    const std::string gpu = on_gpu.*size == on_cpu.*size ? "" : ", on a GPU " + std::to_string(on_gpu.*size);
    return text + " (default: " + std::to_string(on_cpu.*size) + gpu + ")";
  };
  add_size(app, "--batch", sizes.batch, with_default("Batch", &RequestedSizes::batch), "B");
  add_size(app, "--heads", sizes.heads, with_default("Query heads", &RequestedSizes::heads), "H");
  add_size(app, "--kv-heads", sizes.kv_heads, "Key/value heads, a divisor of H (default: H)", "Hkv");
  add_size(app, "--seq", sizes.seq, with_default("Length of queries and keys", &RequestedSizes::seq_q), "N");
  add_size(app, "--seq-q", sizes.seq_q, "Number of queries (default: as --seq)", "Nq");
  add_size(app, "--seq-k", sizes.seq_k, "Number of keys (default: as --seq)", "Nk");
  add_size(app, "--head-dim", sizes.head_dim, with_default("Head dimension", &RequestedSizes::head_dim), "d");
  app.add_flag("--causal", options.causal, "Query i sees key j only if j <= i + Nk - Nq")->group("Problem");
  add(app, "--window", "left,right",
      "Query i sees key j only if i + Nk - Nq - left <= j <= i + Nk - Nq + right; -1: no bound (default: -1,-1)",
      options.window, parse_window);
  add(app, "--softcap", "c", "Scaled scores s become c tanh(s / c), before the bias and the mask; 0: they stay (default: 0)",
      options.softcap, parse_finite);
  add(app, "--lengths", "n,n:m,...",
      "A ragged batch: sequences of these lengths, 0 allowed, packed one after another in tensors of batch 1; n, or "
      "queries:keys",
      options.sequences, parse_lengths);
  add(app, "--dropout", "p",
      "Each weight becomes 0 with this probability, else 1 / (1 - p) times as large, after the softmax (default: 0)",
      options.dropout.probability, parse_finite);
  add(app, "--dropout-seed", "S", "Which weights are dropped; both passes must be given the same (default: 0)",
      options.dropout.seed, parse_seed);
  add_choice(app, "--bias", options.bias, all_biases,
             "Added to the scaled scores: per key, per query and key, or ALiBi slopes (default: none)");
  app.add_flag("--bias-gradient", options.bias_gradient,
               "A backward pass also computes the gradient of the bias, which must be a matrix")
      ->group("Problem");
  add_choice(app, "--score", options.score, all_scores,
             "dot: scale q . k; lorentz: -scale times the distance of q and k as points of the hyperboloid (default: dot)");
  add_choice(
      app, "--values", options.values, all_values,
      "tangent: O is the weighted mean of V; centroid, for --score lorentz: rows of V are points of the hyperboloid, too, "
      "and O is their weighted centroid (default: tangent)");
  add(app, "--scale", "X", "Factor of Q K^T (default: 1/sqrt(d))", options.scale, parse_finite);
  add_choice(app, "--dtype", options.dtype, all_dtypes,
             std::string("Type of Q, K, V, O and their gradients (default: ") +
                 (options.dtype ? to_string(*options.dtype) : "the first that the variant takes, see --list") + ")");
  add_choice(app, "--layout", options.layout, all_layouts,
             "Order in memory: (B,H,N,d), (B,N,H,d), packed QKV (B,N,3,H,d), packed KV (B,N,2,Hkv,d) (default: bhnd)");
  add_choice(app, "--input", options.input, all_inputs,
             "normal: standard normal; ones: all ones, so O is 1; identity: Q and K rows are unit vectors, so with a large "
             "--scale row i of O is row i of V; ramp: Q and K ones and V(j, c) = j + c/1000, so O(i, c) is the mean visible j "
             "+ c/1000; large: scores of some hundreds (default: normal)");
  add(app, "--seed", "S", "Seed of the random inputs (default: 1)", options.seed, parse_seed);
}

void check_contradictions(const ProblemOptions& options) {
  const SizeOptions& sizes = options.sizes;
  if (sizes.seq && (sizes.seq_q || sizes.seq_k)) {
    throw UsageError(std::string("--seq and ") + (sizes.seq_q ? "--seq-q" : "--seq-k") +
                     " are both given; allowed: --seq alone, or --seq-q and --seq-k");
  }
  for (const auto& [given, name] :
       {std::pair{sizes.batch, "--batch"}, {sizes.seq, "--seq"}, {sizes.seq_q, "--seq-q"}, {sizes.seq_k, "--seq-k"}}) {
    if (given && !options.sequences.empty()) {
      throw UsageError(std::string("--lengths and ") + name +
                       " are both given; allowed: one of them, since the lengths are the batch");
    }
  }
}

FullProblem make_problem(const ProblemOptions& options, const RequestedSizes& given) {
  FullProblem problem;
  problem.sequences = options.sequences;
  RequestedSizes sizes = given;
  if (!options.sequences.empty()) {
    sizes.batch = 1, sizes.seq_q = options.sequences.queries.back(), sizes.seq_k = options.sequences.keys.back();
    if (sizes.seq_q == 0 || sizes.seq_k == 0)
      throw UsageError("--lengths has no queries, or no keys, at all; allowed: at least one of each");
  }
  problem.causal = options.causal;
  problem.window = options.window;
  problem.softcap = options.softcap;
  problem.dropout = options.dropout;
  problem.bias = options.bias.value_or(BiasKind::none);
  problem.bias_gradient = options.bias_gradient;
  problem.score = options.score;
  problem.values = options.values;
  problem.dtype = options.dtype.value_or(Dtype::fp32);
  problem.layout = options.layout;
  if (const std::string error = set_sizes(problem, sizes); !error.empty()) throw UsageError(error);
  problem.scale = options.scale.value_or(default_scale(problem.d));
  if (const std::string error = check_options(problem); !error.empty()) throw UsageError(error);
  return problem;
}

std::vector<std::string> to_arguments(const ProblemOptions& options, const RequestedSizes& sizes) {
  std::vector<std::string> arguments;
  const auto add = [&](const char* name, const std::string& value) {
    arguments.emplace_back(name);
    arguments.push_back(value);
  };
  const bool ragged = !options.sequences.empty();
  if (ragged) add("--lengths", to_string(options.sequences));
  if (!ragged) add("--batch", std::to_string(sizes.batch));
  add("--heads", std::to_string(sizes.heads));
  add("--kv-heads", std::to_string(sizes.kv_heads));
  if (!ragged) add("--seq-q", std::to_string(sizes.seq_q));
  if (!ragged) add("--seq-k", std::to_string(sizes.seq_k));
  add("--head-dim", std::to_string(sizes.head_dim));
  if (options.causal) arguments.emplace_back("--causal");
  if (!options.window.is_open()) arguments.push_back("--window=" + to_string(options.window));
  if (options.softcap != 0.0f) add("--softcap", shortest(options.softcap));
  if (options.dropout.probability != 0.0f) {
    add("--dropout", shortest(options.dropout.probability));
    add("--dropout-seed", std::to_string(options.dropout.seed));
  }
  if (options.bias) add("--bias", to_string(*options.bias));
  if (options.bias_gradient) arguments.emplace_back("--bias-gradient");
  if (options.score != Score::dot) add("--score", to_string(options.score));
  if (options.values != Values::tangent) add("--values", to_string(options.values));
  // One word: a value that starts with a minus sign could be taken for an option.
  if (options.scale) arguments.push_back("--scale=" + shortest(*options.scale));
  if (options.dtype) add("--dtype", to_string(*options.dtype));
  add("--layout", to_string(options.layout));
  add("--input", to_string(options.input));
  add("--seed", std::to_string(options.seed));
  return arguments;
}

}  // namespace flash
