#include "common/grid/problems.hpp"

#include "common/attention/option_table.hpp"
#include "common/grid/support.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

namespace flash::grid {
namespace {

// A build with a sanitizer runs one problem of so many, and none with longer sequences.
#if defined(FLASH_TSAN)
constexpr int one_of = 5, longest = 33;
#elif defined(FLASH_ASAN)
constexpr int one_of = 3, longest = 65;
#else
constexpr int one_of = 1, longest = 1 << 20;
#endif

/// Sanitizers find the same at any size, so they get fewer and smaller shapes. AddressSanitizer slows a kernel's thread some ten times;
/// ThreadSanitizer a hundred times, since at a barrier each of a block's threads, as many as 1024, learns what each other one has done.
std::vector<FullProblem> affordable(const std::vector<FullProblem>& problems) {
  std::vector<FullProblem> few;
  for (std::size_t n = 0; n < problems.size(); n += one_of) {
    FullProblem p = problems[n];
    if (p.sequences.empty()) p.Nq = std::min(p.Nq, longest), p.Nk = std::min(p.Nk, longest);
    if (p.Nq <= 2 * longest) few.push_back(p);
  }
  return few;
}

// Tiles of this collection are 16, 32, 64 or 128 long.
const std::vector<std::pair<int, int>> all_lengths{{1, 1},   {1, 3},   {3, 1},     {3, 3},     {15, 17},   {16, 16},
                                                   {31, 31}, {32, 32}, {33, 33},   {63, 65},   {64, 64},   {65, 63},
                                                   {1, 129}, {129, 1}, {113, 203}, {203, 113}, {128, 217}, {257, 257}};
const std::vector<std::pair<int, int>> lengths_in_16_bits{{127, 129}, {128, 128}, {129, 127}, {256, 255}, {7, 500}, {500, 7}};
const std::vector<int> all_head_dims{1, 16, 32, 40, 59, 64, 75, 80, 91, 96, 111, 128};
const std::vector<int> large_head_dims{129, 160, 192, 200, 255, 256};
constexpr BiasKind all_biases[] = {BiasKind::none, BiasKind::vector, BiasKind::matrix, BiasKind::alibi};
constexpr Layout all_layouts[] = {Layout::bhnd, Layout::bnhd, Layout::qkv, Layout::kv};

/// The same for all variants of the stage.
Dtype stage_dtype() { return variants().front().dtypes.front(); }

/// Of any variant of the stage; those that take less sit out the larger ones.
int largest_head_dim() {
  int largest = 0;
  for (const Variant& variant : variants()) largest = std::max(largest, variant.max_head_dim);
  return largest;
}

template <class T>
std::vector<T> joined(std::vector<T> all, const std::vector<T>& more, bool wanted) {
  if (wanted) all.insert(all.end(), more.begin(), more.end());
  return all;
}

bool holds(Layout layout, const FullProblem& p) { return layout != Layout::qkv || (p.Nq == p.Nk && p.H == p.Hkv); }

}  // namespace

FullProblem problem_of(const Shape& shape) {
  FullProblem p;
  p.B = shape.B;
  p.H = shape.H;
  p.Hkv = shape.Hkv;
  p.Nq = shape.Nq;
  p.Nk = shape.Nk;
  p.d = shape.d;
  p.scale = static_cast<float>(1.0 / std::sqrt(shape.d));
  p.dtype = stage_dtype();
  return p;
}

std::vector<FullProblem> lengths() {
  std::vector<FullProblem> problems;
  for (const auto& [Nq, Nk] : joined(all_lengths, lengths_in_16_bits, stage_dtype() != Dtype::fp32)) {
    for (const bool causal : {false, true}) {
      problems.push_back(problem_of({.H = 1, .Hkv = 1, .Nq = Nq, .Nk = Nk, .d = 32}));
      problems.back().causal = causal;
    }
  }
  std::vector<FullProblem> few = affordable(problems);
  if (one_of > 1) {  // a second tile of 64, for either
    few.push_back(problem_of({.H = 1, .Hkv = 1, .Nq = 33, .Nk = 65, .d = 32}));
    few.push_back(problem_of({.H = 1, .Hkv = 1, .Nq = 65, .Nk = 1, .d = 32}));
  }
  return few;
}

std::vector<FullProblem> head_dims() {
  std::vector<FullProblem> problems;
  for (const int d : joined(all_head_dims, large_head_dims, largest_head_dim() > 128)) {
    const bool second = problems.size() % 2 == 1;
    problems.push_back(problem_of({.H = 1, .Hkv = 1, .Nq = 33, .Nk = 131, .d = d}));
    problems.back().causal = second;
  }
  return affordable(problems);
}

std::vector<FullProblem> biases() {
  std::vector<FullProblem> problems;
  for (const BiasKind kind : all_biases) {
    if (kind == BiasKind::none) continue;
    for (const bool per_batch : {false, true}) {
      for (const bool per_head : {false, true}) {
        FullProblem p = problem_of({.B = 2, .H = 2, .Hkv = 2, .Nq = 35, .Nk = 70, .d = 16});
        p.bias = kind;
        p.bias_per_batch = per_batch;
        p.bias_per_head = per_head || kind == BiasKind::alibi;
        p.causal = per_batch != per_head;
        problems.push_back(p);
      }
    }
  }
  return affordable(problems);
}

std::vector<FullProblem> heads_and_layouts() {
  std::vector<FullProblem> problems;
  for (const auto& [H, Hkv] : {std::pair{3, 3}, std::pair{4, 2}, std::pair{3, 1}}) {
    for (const int d : {16, 59}) {
      for (const Layout layout : all_layouts) {
        FullProblem p = problem_of({.B = 2, .H = H, .Hkv = Hkv, .Nq = 34, .Nk = H == Hkv ? 34 : 45, .d = d});
        p.layout = layout;
        p.causal = d == 59;
        // Of grouped heads each layout with one d in groups of 2, with the other in groups of 3.
        if (H != Hkv && (layout == Layout::bnhd) != ((d == 59) == (H == 4))) continue;
        if (holds(layout, p)) problems.push_back(p);
      }
    }
  }
  return affordable(problems);
}

std::vector<FullProblem> fully_masked_rows() {
  std::vector<FullProblem> problems;
  for (const auto& [Nq, Nk] : {std::pair{5, 2}, std::pair{40, 33}, std::pair{70, 5}, std::pair{130, 64}}) {
    problems.push_back(problem_of({.H = 2, .Hkv = 1, .Nq = Nq, .Nk = Nk, .d = 16}));
    problems.back().causal = true;
  }
  return affordable(problems);
}

std::vector<FullProblem> windows() {
  struct Case {
    int Nq, Nk;
    Window window;
    bool causal = false;
    BiasKind bias = BiasKind::none;
  };
  std::vector<Case> cases{
      {33, 33, {0, 0}},
      {70, 64, {Window::open, 3}},        // the first 3 queries see nothing
      {20, 75, {9, Window::open}, true},  // no query sees the first 46 keys
      {40, 30, {7, 1000}, false, BiasKind::matrix},
  };
  for (const int w : {31, 32, 33, 63, 64, 65, 127, 128, 129}) cases.push_back({150, 170, {w, 0}});
  for (const int w : {15, 16, 17, 64}) cases.push_back({170, 150, {w, w}});
  cases.insert(cases.end(), {{130, 257, {0, 0}, false, BiasKind::vector},
                             {257, 130, {3, 1}, false, BiasKind::alibi},
                             {200, 200, {1, Window::open}, true},
                             {200, 200, {Window::open, 100}},
                             {64, 400, {100, 0}},
                             {64, 400, {10, 20}, true, BiasKind::matrix},
                             {1, 300, {130, 5}},
                             {300, 1, {2, 2}}});
  std::vector<FullProblem> problems;
  for (const auto& [Nq, Nk, window, causal, bias] : cases) {
    const bool shared = problems.size() % 2 == 1;
    problems.push_back(problem_of({.H = shared ? 2 : 1, .Hkv = 1, .Nq = Nq, .Nk = Nk, .d = shared ? 40 : 64}));
    problems.back().window = window;
    problems.back().causal = causal;
    problems.back().bias = bias;
  }
  return affordable(problems);
}

std::vector<FullProblem> softcaps() {
  std::vector<FullProblem> problems;
  for (const float c : {0.5f, 30.0f, 3.0f, 100.0f, 1e4f, 1e8f}) {
    FullProblem p = problem_of({.H = 2, .Hkv = 1, .Nq = 100, .Nk = 170, .d = 59});
    p.softcap = c;
    p.scale *= c == 30.0f || c == 100.0f ? 8.0f : 1.0f;  // scores of some tens
    p.causal = c == 3.0f || c == 100.0f;
    if (c == 3.0f || c == 1e4f) p.window = {20, 5};
    p.bias = c == 0.5f ? BiasKind::matrix : c == 3.0f ? BiasKind::alibi : BiasKind::none;
    problems.push_back(p);
  }
  return affordable(problems);
}

std::vector<FullProblem> dropouts() {
  std::vector<FullProblem> problems;
  for (const float probability : {0.1f, 0.5f, 0.9f, 0.2f, 0.3f}) {
    FullProblem p = problem_of({.B = 2, .H = 2, .Hkv = 1, .Nq = 100, .Nk = 170, .d = 59});
    p.dropout = {probability, (std::uint64_t{1} << 40) + 3};
    p.causal = probability == 0.5f;
    if (probability == 0.9f) p.bias = BiasKind::matrix;
    if (probability == 0.2f) p.window = {20, 5}, p.softcap = 2.0f;
    if (probability == 0.3f) {
      p.B = 1;
      p.sequences = parse_lengths("70,0,33:64,0:5");
      p.Nq = p.sequences.queries.back(), p.Nk = p.sequences.keys.back();
    }
    problems.push_back(p);
  }
  return affordable(problems);
}

std::vector<FullProblem> bias_gradients() {
  std::vector<FullProblem> problems;
  for (const bool per_batch : {false, true}) {
    for (const bool per_head : {false, true}) {
      FullProblem p = problem_of({.B = 2, .H = 4, .Hkv = 2, .Nq = 100, .Nk = 170, .d = per_head ? 40 : 59});
      p.bias = BiasKind::matrix;
      p.bias_gradient = true;
      p.bias_per_batch = per_batch;
      p.bias_per_head = per_head;
      if (per_batch != per_head) p.causal = true;
      if (per_batch && per_head) p.softcap = 0.5f, p.window = {20, 5};
      if (!per_batch && per_head) p.dropout = {0.4f, 3};
      problems.push_back(p);
    }
  }
  return affordable(problems);
}

std::vector<FullProblem> hyperbolic() {
  std::vector<FullProblem> problems;
  for (const int n : {0, 1, 2, 3, 4}) {
    FullProblem p = problem_of({.B = n == 3 ? 1 : 2, .H = 2, .Hkv = 1, .Nq = 70, .Nk = 90, .d = n == 0 ? 40 : 59});
    p.score = Score::lorentz;
    p.scale = n == 1 ? 2.0f : 0.7f;
    p.causal = n == 1;
    if (n == 1) p.bias = BiasKind::alibi;
    if (n == 2) p.bias = BiasKind::matrix, p.bias_gradient = true, p.window = {20, 5}, p.softcap = 2.0f, p.dropout = {0.3f, 4};
    if (n == 3) {
      p.sequences = parse_lengths("17,0,5:20");
      p.Nq = p.sequences.queries.back(), p.Nk = p.sequences.keys.back();
    }
    if (n == 4) {  // the first queries see no key, and a bias needs scores that are scaled first
      std::swap(p.Nq, p.Nk);
      p.causal = true, p.bias = BiasKind::matrix, p.layout = Layout::bnhd;
    }
    for (const Values values : {Values::tangent, Values::centroid}) {
      p.values = values;
      if (n == 2 && values == Values::centroid) p.dropout = {};
      problems.push_back(p);
    }
  }
  return affordable(problems);
}

std::vector<FullProblem> ragged() {
  struct Case {
    const char* lengths;
    bool causal = false;
    Window window = {};
    float softcap = 0.0f;
    BiasKind bias = BiasKind::none;
    Layout layout = Layout::bhnd;
    int d = 40;
  };
  const std::vector<Case> cases{
      {"17,0,35,1"},
      {"3:20,30:9,0:5,7:0,40", true},
      {"0,33:20,0,40:45", false, {9, 3}, 0.0f, BiasKind::alibi},
      {"20,31,9", true, {}, 0.0f, BiasKind::none, Layout::qkv, 59},
      {"64,128,63,65,129", false, {}, 0.0f, BiasKind::none, Layout::bnhd, 64},
      {"1:300,300:1,64:65,65:64,0:0,31", true, {}, 0.0f, BiasKind::none, Layout::bhnd, 128},
      {"150,7,200:90,90:200", true, {64, -1}, 3.0f, BiasKind::none, Layout::kv, 96},
      {"128:129,5,129:128", false, {31, 31}, 0.5f, BiasKind::alibi, Layout::bnhd, 64},
      {"257", true},
  };
  std::vector<FullProblem> problems;
  for (const Case& c : cases) {
    const Sequences sequences = parse_lengths(c.lengths);
    const bool shared = problems.size() % 2 == 1 && c.layout != Layout::qkv;
    problems.push_back(
        problem_of({.H = 2, .Hkv = shared ? 1 : 2, .Nq = sequences.queries.back(), .Nk = sequences.keys.back(), .d = c.d}));
    FullProblem& p = problems.back();
    p.sequences = sequences;
    p.causal = c.causal, p.window = c.window, p.softcap = c.softcap, p.bias = c.bias, p.layout = c.layout;
  }
  return affordable(problems);
}

std::vector<FullProblem> sequences_of_a_tile() {
  std::vector<FullProblem> problems;
  for (const bool with_options : {false, true}) {
    const Sequences sequences = parse_lengths("100,128:97,0:5,7:0,120");
    problems.push_back(problem_of({.H = 2, .Hkv = 1, .Nq = sequences.queries.back(), .Nk = sequences.keys.back(), .d = 64}));
    FullProblem& p = problems.back();
    p.sequences = sequences;
    if (!with_options) continue;
    p.causal = true, p.softcap = 3.0f, p.bias = BiasKind::alibi;
  }
  if (one_of > 1) problems.resize(1);  // whose sequences need their lengths
  return problems;
}

std::vector<FullProblem> random_mixture(int count, std::uint64_t seed) {
  std::mt19937_64 bits(seed);
  // Not std::uniform_int_distribution: its values differ between standard libraries.
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(bits() % static_cast<std::uint64_t>(high - low + 1));
  };
  std::vector<FullProblem> problems;
  while (static_cast<int>(problems.size()) < count) {
    const int Hkv = pick(1, 2);
    FullProblem p = problem_of({.B = pick(1, 2),
                                .H = Hkv * pick(1, 3),
                                .Hkv = Hkv,
                                .Nq = pick(1, 140),
                                .Nk = pick(1, 140),
                                .d = pick(1, largest_head_dim())});
    if (pick(0, 1) == 1) p.Nk = p.Nq;
    p.causal = pick(0, 1) == 1;
    p.bias = all_biases[pick(0, 3)];
    p.bias_per_batch = pick(0, 1) == 1;
    p.bias_per_head = p.bias == BiasKind::alibi || pick(0, 1) == 1;
    p.layout = all_layouts[pick(0, 3)];
    p.scale *= 0.5f + 0.25f * static_cast<float>(pick(0, 6));
    if (holds(p.layout, p)) problems.push_back(p);
  }
  return affordable(problems);
}

bool sanitized() { return one_of > 1; }

std::vector<FullProblem> every_tile() {
  FullProblem mixed = problem_of({.H = 4, .Hkv = 2, .Nq = 70, .Nk = 90, .d = 40});
  mixed.causal = true;
  mixed.bias = BiasKind::matrix;
  FullProblem dropped = mixed;
  dropped.dropout = {0.4f, 11};
  std::vector<FullProblem> problems{mixed, dropped};
  for (const int d : {24, 40, 90, 111}) {
    problems.push_back(problem_of({.H = 2, .Hkv = 1, .Nq = 70, .Nk = 90, .d = d}));
    problems.back().score = Score::lorentz;
    problems.push_back(problems.back());
    problems.back().values = Values::centroid;
  }
  for (const int d : joined(std::vector{24, 40, 90, 111}, {200}, largest_head_dim() > 128)) {
    if (d == 40 || d == 111) problems.push_back(problem_of({.H = 1, .Hkv = 1, .Nq = 133, .Nk = 150, .d = d}));
    problems.push_back(problem_of({.H = 1, .Hkv = 1, .Nq = 150, .Nk = 133, .d = d}));
    problems.back().causal = true;
  }
  return affordable(problems);
}

std::vector<FullProblem> tiny() {
  std::vector<FullProblem> problems;
  for (const int d : joined(std::vector{24, 40, 90, 111}, {200}, largest_head_dim() > 128)) {
    problems.push_back(problem_of({.H = 1, .Hkv = 1, .Nq = 70, .Nk = 70, .d = d}));
  }
  return problems;
}

std::vector<FullProblem> counted(std::vector<FullProblem> problems) {
  if (sanitized()) problems.resize(1);
  return problems;
}

}  // namespace flash::grid
