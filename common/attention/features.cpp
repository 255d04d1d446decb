#include "common/attention/features.hpp"

namespace flash {
namespace {

struct Row {
  Features feature;
  const char* name;
  bool (*present)(const FullProblem&);
};

constexpr Row table[] = {
    {Features::causal, "--causal", [](const FullProblem& p) { return p.causal; }},
    {Features::vector_bias, "--bias vector", [](const FullProblem& p) { return p.bias == BiasKind::vector; }},
    {Features::matrix_bias, "--bias matrix", [](const FullProblem& p) { return p.bias == BiasKind::matrix; }},
    {Features::alibi, "--bias alibi", [](const FullProblem& p) { return p.bias == BiasKind::alibi; }},
    {Features::shared_heads, "fewer --kv-heads than --heads", [](const FullProblem& p) { return p.Hkv != p.H; }},
    {Features::unequal_lengths, "--seq-q unlike --seq-k", [](const FullProblem& p) { return p.Nq != p.Nk; }},
    {Features::bnhd, "--layout bnhd", [](const FullProblem& p) { return p.layout == Layout::bnhd; }},
    {Features::packed_qkv, "--layout qkv", [](const FullProblem& p) { return p.layout == Layout::qkv; }},
    {Features::packed_kv, "--layout kv", [](const FullProblem& p) { return p.layout == Layout::kv; }},
    {Features::window, "--window", [](const FullProblem& p) { return !p.window.is_open(); }},
    {Features::softcap, "--softcap", [](const FullProblem& p) { return p.softcap != 0.0f; }},
    {Features::lengths, "--lengths", [](const FullProblem& p) { return !p.sequences.empty(); }},
    {Features::dropout, "--dropout", [](const FullProblem& p) { return p.dropout.probability != 0.0f; }},
    {Features::bias_gradient, "--bias-gradient", [](const FullProblem& p) { return p.bias_gradient; }},
    {Features::lorentz, "--score lorentz", [](const FullProblem& p) { return p.score == Score::lorentz; }},
    {Features::centroid, "--values centroid", [](const FullProblem& p) { return p.values == Values::centroid; }},
};

}  // namespace

Features features_of(const FullProblem& problem) {
  // Does not compile once a problem has another field: a new option belongs into the table, or every kernel would be given it.
  [[maybe_unused]] const auto& [B, H, Hkv, Nq, Nk, d, scale, causal, bias, bias_per_batch, bias_per_head, dtype, layout] =
      static_cast<const Problem&>(problem);
  static_assert(sizeof(OptionsProblem) == sizeof(Problem) + sizeof(Window) + sizeof(problem.softcap));
  struct Known : OptionsProblem {
    Sequences sequences;
    Dropout dropout;
    Score score;
    Values values;
    bool bias_gradient;
  };
  static_assert(sizeof(FullProblem) == sizeof(Known));
  Features found = Features::none;
  for (const Row& row : table) {
    if (row.present(problem)) found = found | row.feature;
  }
  return found;
}

std::vector<std::string> names_of(Features features) {
  std::vector<std::string> names;
  for (const Row& row : table) {
    if ((features & row.feature) != Features::none) names.emplace_back(row.name);
  }
  return names;
}

}  // namespace flash
