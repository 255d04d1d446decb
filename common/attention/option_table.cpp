#include "common/attention/option_table.hpp"

#include "common/attention/tensor_table.hpp"
#include "common/machine/error.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <utility>

namespace flash {
namespace {

using F = Features;
using P = FullProblem;
using enum Named;

constexpr bool is_bound(int keys) { return keys >= Window::open && keys < largest_size; }

template <class Owner, class T>
constexpr ProblemOption option(const char* name, T Owner::*member, const char* value, const char* help,
                               const ProblemOption::Traits& traits = {}) {
  if constexpr (Enumeration<T>) return {name, member, value, help, traits, value_names<T>};
  return {name, member, value, help, traits, {}};
}

constexpr ProblemOption option_table[] = {
    option("--batch", &P::B, "B", "Batch", {.named = always}),
    option("--heads", &P::H, "H", "Query heads", {.named = always}),
    option("--kv-heads", &P::Hkv, "Hkv", "Key/value heads, a divisor of H",
           {.named = always,
            .features = {F::none, F::shared_heads},
            .default_text = "H",
            .feature_name = "fewer --kv-heads than --heads"}),
    option("--seq-q", &P::Nq, "Nq", "Number of queries", {.named = always}),
    option("--seq-k", &P::Nk, "Nk", "Number of keys",
           {.named = always, .features = {F::none, F::unequal_lengths}, .feature_name = "--seq-q unlike --seq-k"}),
    option("--head-dim", &P::d, "d", "Head dimension",
           {.named = always,
            .allowed = "whole numbers from 1 to 256",
            .valid = [](const P& p) { return p.d <= largest_head_dim; }}),
    option("--scale", &P::scale, "X", "Factor of Q K^T",
           {.named = always_in_json,
            .features = {F::none, F::any_scale},
            .default_text = "1/sqrt(d)",
            .feature_name = "a --scale that is not positive, or 1e30 or more",
            .has_feature = [](const P& p) { return !(p.scale > 0.0f && p.scale < 1e30f); }}),
    option("--causal", &P::causal, "", "Query i sees key j only if j <= i + Nk - Nq",
           {.named = always_in_json, .features = {F::none, F::causal}}),
    option("--window", &P::window, "left,right",
           "Query i sees key j only if i + Nk - Nq - left <= j <= i + Nk - Nq + right; -1: no bound",
           {.features = {F::none, F::window},
            .allowed = "left,right, each -1 for no bound, or 0 to 2^30-1",
            .valid = [](const P& p) { return is_bound(p.window.left) && is_bound(p.window.right); }}),
    option("--softcap", &P::softcap, "c", "Scaled scores s become c tanh(s / c), before the bias and the mask; 0: they stay",
           {.features = {F::none, F::softcap},
            .allowed = "a number between 1e-38 and 1e30, or 0 for none",
            .valid = [](const P& p) { return p.softcap == 0 || (p.softcap > 1e-38f && p.softcap < 1e30f); }}),
    option("--lengths", &P::sequences, "n,n:m,...",
           "A ragged batch: sequences of these lengths, 0 allowed, packed one after another in tensors of batch 1; n, or "
           "queries:keys",
           {.features = {F::none, F::lengths},
            .default_text = "none",
            .allowed = "lengths such as 100,0,7:20, each of 0 or more queries and keys, or queries:keys, 1 to 2^30 together",
            .valid =
                [](const P& p) {
                  return p.sequences.empty() || (p.sequences.queries.back() > 0 && p.sequences.keys.back() > 0);
                }}),
    option("--dropout", &Dropout::probability, "p",
           "Each weight becomes 0 with this probability, else 1 / (1 - p) times as large, after the softmax",
           {.features = {F::none, F::dropout},
            .allowed = "a probability from 0, for none, to less than 1",
            .valid = [](const P& p) { return p.dropout.probability >= 0 && p.dropout.probability < 1; }}),
    option("--dropout-seed", &Dropout::seed, "S", "Which weights are dropped; both passes must be given the same",
           {.allowed = "0 without --dropout, else whole numbers from 0 to 2^64-1",
            .valid = [](const P& p) { return p.dropout.seed == 0 || p.dropout.probability != 0; }}),
    option("--score", &P::score, "",
           "dot: scale q . k; lorentz: -scale times the distance of q and k as points of the hyperboloid",
           {.features = {F::none, F::lorentz}}),
    option("--values", &P::values, "",
           "tangent: O is the weighted mean of V; centroid, for --score lorentz: rows of V are points of the hyperboloid, too, "
           "and O is their weighted centroid",
           {.features = {F::none, F::centroid}}),
    option("--dtype", &P::dtype, "", "Type of Q, K, V, O and their gradients",
           {.named = always, .default_text = "the first that the variant takes, see --list"}),
    option("--layout", &P::layout, "", "Order in memory: (B,H,N,d), (B,N,H,d), packed QKV (B,N,3,H,d), packed KV (B,N,2,Hkv,d)",
           {.named = always, .features = {F::none, F::bnhd, F::packed_qkv, F::packed_kv}}),
    option("--bias", &P::bias, "", "Added to the scaled scores: per key, per query and key, or ALiBi slopes",
           {.named = always, .features = {F::none, F::vector_bias, F::matrix_bias, F::alibi}}),
    option("--bias-per-batch", &P::bias_per_batch, "", "Each batch has a bias of its own",
           {.allowed = "false without --bias, else true, false",
            .valid = [](const P& p) { return !p.bias_per_batch || p.bias != BiasKind::none; }}),
    option("--bias-per-head", &P::bias_per_head, "", "Each query head has a bias of its own, unless this is false",
           {.allowed = "true without --bias, else true, false",
            .valid = [](const P& p) { return p.bias_per_head || p.bias != BiasKind::none; }}),
    option("--bias-gradient", &P::bias_gradient, "",
           "A backward pass also computes the gradient of the bias, which must be a matrix",
           {.features = {F::none, F::bias_gradient}}),
    option("--input", &P::input, "",
           "normal: standard normal; ones: all ones, so O is 1; identity: Q and K rows are unit vectors, so with a large "
           "--scale row i of O is row i of V; ramp: Q and K ones and V(j, c) = j + c/1000, so O(i, c) is the mean visible j "
           "+ c/1000; large: scores of some hundreds",
           {.named = of_inputs}),
    option("--seed", &P::seed, "S", "Seed of the random inputs", {.named = of_inputs}),
};

// A type's text: from it, false if it is none, and back.

template <class Number>
bool from_text(const std::string& text, Number& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && stop == end;
}
bool from_text(const std::string& text, bool& value) {
  value = text == "true";
  return value || text == "false";
}
bool from_text(const std::string& text, float& value) {  // from_chars() is too new
  char* stop = nullptr;
  errno = 0;
  value = std::strtof(text.c_str(), &stop);
  const bool starts_with_space = text.empty() || std::isspace(static_cast<unsigned char>(text.front())) != 0;
  const bool underflows = value == 0 && errno == ERANGE;
  return !starts_with_space && stop == text.c_str() + text.size() && std::isfinite(value) && !underflows;
}
template <Enumeration Enum>
bool from_text(const std::string& text, Enum& value) {
  const auto& names = value_names<Enum>;
  const auto found = std::ranges::find(names, text);
  value = static_cast<Enum>(found - names.begin());
  return found != names.end();
}
bool from_text(const std::string& text, Window& window) {
  const std::size_t comma = std::min(text.find(','), text.size());
  return comma < text.size() && from_text(text.substr(0, comma), window.left) &&
         from_text(text.substr(comma + 1), window.right);
}
bool from_text(const std::string& text, Sequences& sequences) {
  sequences = {{0}, {0}};
  const auto append = [](std::vector<int>& offsets, const std::string& length) {
    int n = 0;
    if (!from_text(length, n) || n < 0 || n > largest_size - offsets.back()) return false;
    offsets.push_back(offsets.back() + n);
    return true;
  };
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string pair = text.substr(at, comma - at);
    const std::size_t colon = pair.find(':');  // npos + 1 is 0: without a colon both are all of it
    if (!append(sequences.queries, pair.substr(0, colon)) || !append(sequences.keys, pair.substr(colon + 1))) return false;
    at = comma + 1;
  }
  return true;
}

template <class Number>
std::string to_text(Number value) {  // digits that give back the same number
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}
std::string to_text(bool value) { return value ? "true" : "false"; }
template <Enumeration Enum>
std::string to_text(Enum value) {
  return to_string(value);
}
std::string to_text(const Window& window) { return to_text(window.left) + "," + to_text(window.right); }
std::string to_text(const Sequences& sequences) {
  std::string text;
  for (std::size_t s = 0; s + 1 < sequences.queries.size(); ++s) {
    const int queries = sequences.queries[s + 1] - sequences.queries[s], keys = sequences.keys[s + 1] - sequences.keys[s];
    text += (s > 0 ? "," : "") + to_text(queries) + (queries == keys ? "" : ":" + to_text(keys));
  }
  return text;
}

/// Of a value that could be read: sizes are 1 at least.
bool in_range(const ProblemOption& option, const P& p) {
  const auto* const size = std::get_if<int P::*>(&option.member);
  return (size == nullptr || (p.**size >= 1 && p.**size <= largest_size)) &&
         (option.traits.valid == nullptr || option.traits.valid(p));
}

[[noreturn]] void refuse_value(const ProblemOption& option, const std::string& text) {
  const std::string allowed = option.traits.allowed != nullptr ? option.traits.allowed
                              : !option.values.empty()         ? joined(option.values, std::identity())
                              : holds<int>(option)             ? "whole numbers from 1 to 2^30"
                              : holds<float>(option)           ? "numbers in the range of fp32"
                                                               : "whole numbers from 0 to 2^64-1";
  throw UsageError(std::string(option.name) + " is '" + text + "'; allowed: " + allowed);
}

/// The problem of these sizes with all else at its default.
P defaults_of(const P& p) {
  P usual;
  usual.B = p.B, usual.H = usual.Hkv = p.H, usual.Nq = usual.Nk = p.Nq, usual.d = p.d;
  usual.scale = default_scale(p.d);
  return usual;
}

/// Do the factors multiply to at least 2^62? Offsets are signed and have 64 bits; there is room to add two of them.
bool too_large(std::initializer_list<std::int64_t> factors) {
  std::int64_t room = (std::int64_t{1} << 62) - 1;
  for (const std::int64_t factor : factors) room /= factor;  // floor(floor(a / b) / c) = floor(a / (b * c))
  return room == 0;
}

}  // namespace

std::span<const ProblemOption> problem_options() { return option_table; }

GivenOptions given_sizes(const std::array<std::int64_t, 6>& sizes) {
  GivenOptions given;
  std::size_t n = 0;
  for (const ProblemOption& option : option_table)
    if (holds<int>(option)) given[option.name] = to_text(sizes.at(n++));
  return given;
}

void give_option(GivenOptions& given, const std::string& name, const std::string& value, const std::string& why) {
  const auto [found, is_new] = given.try_emplace(name, value);
  if (found->second != value)
    throw UsageError(name + " is " + found->second + ", but " + why + ": " + value + "; leave it out");
}

FullProblem make_problem(GivenOptions given) {
  P p;
  for (const ProblemOption& option : option_table) {
    const auto found = given.find(option.name);
    if (found == given.end()) continue;
    const bool read = with_value(option, p, [&](auto& value) { return from_text(found->second, value); });
    if (!read || !in_range(option, p)) refuse_value(option, found->second);
  }
  if (!given.contains("--kv-heads")) p.Hkv = p.H;
  if (!given.contains("--scale")) p.scale = default_scale(p.d);
  if (!p.sequences.empty()) {
    p.B = 1, p.Nq = p.sequences.queries.back(), p.Nk = p.sequences.keys.back();
    for (const auto& [name, size] : {std::pair{"--batch", p.B}, {"--seq-q", p.Nq}, {"--seq-k", p.Nk}})
      give_option(given, name, to_text(size), "the sequences of --lengths have together");
  }
  check_problem(p);
  return p;
}

void check_problem(const FullProblem& p) {
  const auto refuse = [](bool wrong, const std::string& what) {
    if (wrong) throw UsageError(what);
  };
  const auto sizes = [&](std::initializer_list<const char*> options) {
    return joined(options, [&](const char* name) {
      const auto option = std::ranges::find(option_table, std::string_view(name), &ProblemOption::name);
      return name + (" " + value_text(*option, p));
    });
  };
  for (const ProblemOption& option : option_table)
    if (!in_range(option, p)) refuse_value(option, value_text(option, p));
  refuse(p.H % p.Hkv != 0, sizes({"--heads", "--kv-heads"}) + "; allowed: heads that are a multiple of the kv-heads");
  refuse(p.layout == Layout::qkv && (p.Nq != p.Nk || p.H != p.Hkv),
         "--layout qkv with " + sizes({"--heads", "--kv-heads", "--seq-q", "--seq-k"}) +
             "; allowed: as many queries as keys, and as many kv-heads as heads");
  // The largest things that anyone indexes, at 4 bytes an element: packed QKV, or the scores [B, H, Nq, Nk].
  refuse(too_large({4, 3, p.B, p.H, std::max(p.Nq, p.Nk), p.d}) || too_large({4, p.B, p.H, p.Nq, p.Nk}),
         sizes({"--batch", "--heads", "--seq-q", "--seq-k", "--head-dim"}) +
             "; allowed: less than 2^62 bytes per tensor, scores included");
  const std::string bias = std::string("--bias ") + to_string(p.bias);
  refuse(p.bias_gradient && p.bias != BiasKind::matrix, "--bias-gradient with " + bias + "; allowed: --bias matrix");
  refuse(p.values == Values::centroid && p.score != Score::lorentz,
         "--values centroid with --score dot; allowed: --score lorentz");
  refuse(
      p.values == Values::centroid && p.dropout.probability != 0,
      "--values centroid with --dropout; allowed: one of them, since a row that lost all its weights would have no centroid");
  refuse(!p.sequences.empty() && (p.bias == BiasKind::vector || p.bias == BiasKind::matrix),
         bias + " with --lengths; allowed: --bias none, alibi");
}

std::string value_text(const ProblemOption& option, const FullProblem& problem) {
  return with_value(option, problem, [](const auto& value) { return to_text(value); });
}

std::string values_text(const ProblemOption& option) {
  return option.values.empty() ? option.value : joined(option.values, std::identity(), "|");
}

FullProblem without_option(const ProblemOption& option, FullProblem problem) {
  const P usual = defaults_of(problem);
  std::visit([&](auto member) { value_of(problem, member) = value_of(usual, member); }, option.member);
  return problem;
}

bool is_set(const ProblemOption& option, const FullProblem& problem) {
  const P usual = defaults_of(problem);
  return std::visit([&](auto member) { return !(value_of(problem, member) == value_of(usual, member)); }, option.member);
}

Features features_of(const FullProblem& problem) {
  F found = F::none;
  for (const ProblemOption& option : option_table) {
    const auto which = with_value(option, problem, [&](const auto& value) {
      if constexpr (Enumeration<std::decay_t<decltype(value)>>) return static_cast<std::size_t>(value);
      return std::size_t{option.traits.has_feature == nullptr ? is_set(option, problem) : option.traits.has_feature(problem)};
    });
    found = found | option.traits.features.at(which);
  }
  return found;
}

bool FullProblem::is_general() const { return (features_of(*this) & ~general_problem) == F::none; }

std::string names_of(Features features) {
  std::vector<std::string> names;
  for (const ProblemOption& option : option_table) {
    for (std::size_t i = 0; i < option.traits.features.size(); ++i) {
      if ((features & option.traits.features[i]) == F::none) continue;
      names.emplace_back(option.traits.feature_name != nullptr ? option.traits.feature_name : option.name);
      if (!option.values.empty()) names.back() += std::string(" ") + option.values[i];
    }
  }
  return joined(names, std::identity());
}

std::string describe(const FullProblem& p) {
  std::string line;
  for (const ProblemOption& option : option_table) {
    if (option.traits.named == Named::of_inputs || (option.traits.named != Named::always && !is_set(option, p))) continue;
    std::string text = value_text(option, p);
    if (text.size() > 60) text = text.substr(0, 60) + "...";
    line += line.empty() ? "" : " ";
    if (!holds<Dtype>(option) && !holds<Layout>(option)) line += holds<int>(option) ? option.value : option.name + 2;
    if (text != "true") line += (line.ends_with(' ') ? "" : "=") + text;
  }
  return line;
}

std::vector<std::string> to_arguments(const FullProblem& p) {
  std::vector<std::string> arguments;
  for (const ProblemOption& option : option_table)
    if (option.traits.named == Named::always || option.traits.named == Named::of_inputs || is_set(option, p))
      arguments.push_back(option.name + ("=" + value_text(option, p)));
  return arguments;
}

}  // namespace flash
