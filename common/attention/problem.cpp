#include "common/attention/problem.hpp"

#include "common/attention/limits.hpp"
#include "common/attention/tensor.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>

namespace flash {
namespace {

// Offsets are 64-bit and signed. 2^62 bytes leave room to add two of them.
constexpr std::int64_t largest_tensor_bytes = std::int64_t{1} << 62;

/// "0.25" of a value, with so many digits.
std::string number(float value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, static_cast<double>(value));
  return text;
}

std::string option(const char* name, std::int64_t value) { return std::string("--") + name + " " + std::to_string(value); }

std::string check_range(const char* name, std::int64_t value, std::int64_t largest) {
  if (value >= 1 && value <= largest) return "";
  return option(name, value) + ": must be between 1 and " + std::to_string(largest);
}

/// Do the factors multiply to at least largest_tensor_bytes? All are >= 1. No product is formed that could overflow.
bool too_large(std::initializer_list<std::int64_t> factors) {
  std::int64_t room = largest_tensor_bytes - 1;
  for (const std::int64_t factor : factors) room /= factor;  // floor(floor(a / b) / c) = floor(a / (b * c))
  return room == 0;
}

/// "" or why the layout cannot hold tensors of these sizes.
std::string check_layout(Layout layout, const RequestedSizes& sizes, std::int64_t kv_heads) {
  if (layout != Layout::qkv) return "";  // packed KV holds K and V only, whose shapes always agree
  if (sizes.seq_q != sizes.seq_k) {
    return "--layout qkv with " + option("seq-q", sizes.seq_q) + " and " + option("seq-k", sizes.seq_k) +
           ": packed QKV needs as many queries as keys";
  }
  if (sizes.heads != kv_heads) {
    return "--layout qkv with " + option("heads", sizes.heads) + " and " + option("kv-heads", kv_heads) +
           ": packed QKV needs as many kv-heads as heads";
  }
  return "";
}

/// The sequence of a row; empty sequences have none.
int sequence_of(const std::vector<int>& offsets, int row) {
  return static_cast<int>(std::upper_bound(offsets.begin(), offsets.end(), row) - offsets.begin()) - 1;
}

}  // namespace

OptionsProblem FullProblem::sequence(int s) const {
  OptionsProblem one = *this;
  const auto at = static_cast<std::size_t>(s);
  one.Nq = sequences.queries[at + 1] - sequences.queries[at];
  one.Nk = sequences.keys[at + 1] - sequences.keys[at];
  return one;
}

int FullProblem::of_query(int i) const { return sequence_of(sequences.queries, i); }
int FullProblem::of_key(int j) const { return sequence_of(sequences.keys, j); }

namespace {

/// Where a sequence begins. The one of a batch that is not ragged begins at 0 and is the problem.
struct Begin {
  int query, key;
  OptionsProblem problem;
};

Begin begin_of(const FullProblem& p, int s) {
  const auto at = static_cast<std::size_t>(s);
  return {p.sequences.queries[at], p.sequences.keys[at], p.sequence(s)};
}
Begin of_query(const FullProblem& p, int i) { return p.sequences.empty() ? Begin{0, 0, p} : begin_of(p, p.of_query(i)); }
Begin of_key(const FullProblem& p, int j) { return p.sequences.empty() ? Begin{0, 0, p} : begin_of(p, p.of_key(j)); }

}  // namespace

int FullProblem::own_key(int i) const {
  const auto [query, key, one] = flash::of_query(*this, i);
  return key + i - query + one.Nk - one.Nq;
}
float FullProblem::drop_factor(const DropMask& mask, int b, int h, int i, int j) const {
  const auto [query, key, one] = flash::of_query(*this, i);
  return mask((sequences.empty() ? b : of_query(i)) * H + h, i - query, j - key);
}
int FullProblem::first_key(int i) const {
  const auto [query, key, one] = flash::of_query(*this, i);
  return key + one.first_key(i - query);
}
int FullProblem::end_key(int i) const {
  const auto [query, key, one] = flash::of_query(*this, i);
  return key + one.end_key(i - query);
}
int FullProblem::first_query(int j) const {
  const auto [query, key, one] = flash::of_key(*this, j);
  return query + one.first_query(j - key);
}
int FullProblem::end_query(int j) const {
  const auto [query, key, one] = flash::of_key(*this, j);
  return query + one.end_query(j - key);
}

std::string set_sizes(Problem& problem, const RequestedSizes& sizes) {
  const std::int64_t kv_heads = sizes.kv_heads == 0 ? sizes.heads : sizes.kv_heads;
  for (const std::string& error :
       {check_range("batch", sizes.batch, largest_size), check_range("heads", sizes.heads, largest_size),
        check_range("kv-heads", kv_heads, largest_size), check_range("seq-q", sizes.seq_q, largest_size),
        check_range("seq-k", sizes.seq_k, largest_size), check_range("head-dim", sizes.head_dim, largest_head_dim)}) {
    if (!error.empty()) return error;
  }
  if (sizes.heads % kv_heads != 0) {
    return option("heads", sizes.heads) + " with " + option("kv-heads", kv_heads) + ": heads must be a multiple of kv-heads";
  }
  if (std::string error = check_layout(problem.layout, sizes, kv_heads); !error.empty()) return error;

  // The largest things that anyone indexes, at 4 bytes an element: packed QKV, or the scores [B, H, Nq, Nk].
  const std::int64_t longest = std::max(sizes.seq_q, sizes.seq_k);
  if (too_large({4, 3, sizes.batch, sizes.heads, longest, sizes.head_dim}) ||
      too_large({4, sizes.batch, sizes.heads, sizes.seq_q, sizes.seq_k})) {
    return option("batch", sizes.batch) + " with " + option("heads", sizes.heads) + ", " + option("seq-q", sizes.seq_q) + ", " +
           option("seq-k", sizes.seq_k) + ", " + option("head-dim", sizes.head_dim) +
           ": every tensor, the scores included, must stay below 2^62 bytes";
  }

  problem.B = static_cast<int>(sizes.batch);
  problem.H = static_cast<int>(sizes.heads);
  problem.Hkv = static_cast<int>(kv_heads);
  problem.Nq = static_cast<int>(sizes.seq_q);
  problem.Nk = static_cast<int>(sizes.seq_k);
  problem.d = static_cast<int>(sizes.head_dim);
  return "";
}

std::string check_options(const FullProblem& p) {
  for (const int bound : {p.window.left, p.window.right}) {
    if (bound < Window::open || bound > largest_window) {
      return "--window is '" + to_string(p.window) + "'; allowed: left,right, each -1 for no bound, or 0 to 2^30-1";
    }
  }
  if (p.softcap != 0.0f && !(p.softcap > 0.0f && std::isfinite(p.softcap) && std::isfinite(1.0f / p.softcap))) {
    return "--softcap is " + number(p.softcap, 9) + "; allowed: a positive number with a finite inverse, or 0 for none";
  }
  if (!(p.dropout.probability >= 0.0f && p.dropout.probability < 1.0f)) {
    return "--dropout is " + number(p.dropout.probability, 9) + "; allowed: a probability from 0, for none, to less than 1";
  }
  if (p.bias_gradient && p.bias != BiasKind::matrix)
    return std::string("--bias-gradient with --bias ") + to_string(p.bias) + "; allowed: --bias matrix";
  if (p.values == Values::centroid && p.score != Score::lorentz)
    return std::string("--values centroid with --score ") + to_string(p.score) + "; allowed: --score lorentz";
  if (p.values == Values::centroid && p.dropout.probability != 0.0f)
    return "--values centroid with --dropout; allowed: one of them, since a row that lost all its weights would have no "
           "centroid";
  if (!p.sequences.empty() && (p.bias == BiasKind::vector || p.bias == BiasKind::matrix))
    return std::string("--bias ") + to_string(p.bias) + " with --lengths: allowed: none, alibi";
  return "";
}

float default_scale(int d) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(d))); }

const char* to_string(Pass pass) { return pass == Pass::forward ? "forward" : "backward"; }

const char* to_string(Dtype dtype) {
  constexpr const char* names[]{"fp32", "fp16", "bf16"};
  return names[static_cast<int>(dtype)];
}

const char* to_string(Layout layout) {
  constexpr const char* names[]{"bhnd", "bnhd", "qkv", "kv"};
  return names[static_cast<int>(layout)];
}

const char* to_string(BiasKind bias) {
  constexpr const char* names[]{"none", "vector", "matrix", "alibi"};
  return names[static_cast<int>(bias)];
}

const char* to_string(Score score) { return score == Score::dot ? "dot" : "lorentz"; }

const char* to_string(Values values) { return values == Values::tangent ? "tangent" : "centroid"; }

std::string to_string(const Window& window) { return std::to_string(window.left) + "," + std::to_string(window.right); }

std::string to_string(const Sequences& sequences) {
  std::string text;
  for (std::size_t s = 0; s + 1 < sequences.queries.size(); ++s) {
    const int queries = sequences.queries[s + 1] - sequences.queries[s], keys = sequences.keys[s + 1] - sequences.keys[s];
    text += (s > 0 ? "," : "") + std::to_string(queries) + (queries == keys ? "" : ":" + std::to_string(keys));
  }
  return text;
}

std::string describe(const FullProblem& p) {
  std::string line = "B=" + std::to_string(p.B) + " H=" + std::to_string(p.H) + " Hkv=" + std::to_string(p.Hkv) +
                     " Nq=" + std::to_string(p.Nq) + " Nk=" + std::to_string(p.Nk) + " d=" + std::to_string(p.d);
  if (p.scale != default_scale(p.d)) line += " scale=" + number(p.scale, 6);
  if (p.score != Score::dot) line += std::string(" score=") + to_string(p.score);
  if (p.values != Values::tangent) line += std::string(" values=") + to_string(p.values);
  if (p.causal) line += " causal";
  if (!p.window.is_open()) line += " window=" + to_string(p.window);
  if (p.softcap != 0.0f) line += " softcap=" + number(p.softcap, 6);
  if (!p.sequences.empty()) {
    const std::string lengths = to_string(p.sequences);
    const bool few = p.sequences.count() <= 12;
    line += few ? " lengths=" + lengths
                : " lengths=" + lengths.substr(0, lengths.find(',')) + ",... (" + std::to_string(p.sequences.count()) + ")";
  }
  if (p.dropout.probability != 0.0f) {
    line += " dropout=" + number(p.dropout.probability, 6) + " (seed " + std::to_string(p.dropout.seed) + ")";
  }
  line += std::string(" ") + to_string(p.dtype) + " " + to_string(p.layout) + " bias=" + to_string(p.bias);
  if (p.bias != BiasKind::none) {
    const auto shape = bias_shape(p);
    line += "[" + std::to_string(shape[0]) + "," + std::to_string(shape[1]) + "," + std::to_string(shape[2]) + "," +
            std::to_string(shape[3]) + "]";
  }
  if (p.bias_gradient) line += " and its gradient";
  return line;
}

}  // namespace flash
