// The problems that every stage is tested on, small, but each at a place where kernels go wrong, and the cases that run them.
#include "common/grid/problems.hpp"

#include "common/attention/option_table.hpp"
#include "common/grid/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>
#include <sstream>
#include <utility>

namespace flash::grid {
namespace {

// AddressSanitizer slows a kernel's thread some ten times: it runs one problem of so many, and none with longer sequences.
#ifdef FLASH_ASAN
constexpr int one_of = 3, longest = 65;
#else
constexpr int one_of = 1, longest = 1 << 20;
#endif

// Tiles of this collection are 16, 32, 64 or 128 long.
const std::vector<std::pair<int, int>> all_lengths{{1, 1},   {1, 3},   {3, 1},     {3, 3},     {15, 17},   {16, 16},
                                                   {31, 31}, {32, 32}, {33, 33},   {63, 65},   {64, 64},   {65, 63},
                                                   {1, 129}, {129, 1}, {113, 203}, {203, 113}, {128, 217}, {257, 257}};
const std::vector<std::pair<int, int>> lengths_in_16_bits{{127, 129}, {128, 128}, {129, 127}, {256, 255}, {7, 500}, {500, 7}};
const std::vector<int> all_head_dims{1, 16, 32, 40, 59, 64, 75, 80, 91, 96, 111, 128};
const std::vector<int> large_head_dims{129, 160, 192, 200, 255, 256};
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

std::vector<FullProblem> lengths() {
  std::vector<FullProblem> problems;
  for (const auto& [Nq, Nk] : joined(all_lengths, lengths_in_16_bits, stage_dtype() != Dtype::fp32)) {
    for (const bool causal : {false, true}) {
      problems.push_back(problem_of({.H = 1, .Hkv = 1, .Nq = Nq, .Nk = Nk, .d = 32}));
      problems.back().causal = causal;
    }
  }
  return affordable(problems);
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
  for (const std::string kind : {"vector", "matrix", "alibi"}) {
    for (const char* shared : {" --bias-per-head false", " --causal --layout bnhd",
                               " --bias-per-batch --bias-per-head false --causal", " --bias-per-batch --layout kv --scale 0.5"})
      problems.push_back(parsed("--batch 2 --seq-q 35 --seq-k 70 --head-dim 16 --bias " + kind + shared));
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

}  // namespace

FullProblem problem_of(const Shape& shape) {
  FullProblem p;
  static_cast<Problem&>(p) = {.B = shape.B, .H = shape.H, .Hkv = shape.Hkv, .Nq = shape.Nq, .Nk = shape.Nk, .d = shape.d};
  p.scale = default_scale(shape.d);
  p.dtype = stage_dtype();
  return p;
}

std::vector<FullProblem> affordable(const std::vector<FullProblem>& problems) {
  std::vector<FullProblem> few;
  for (std::size_t n = 0; n < problems.size(); n += one_of) {
    FullProblem p = problems[n];
    if (p.sequences.empty()) p.Nq = std::min(p.Nq, longest), p.Nk = std::min(p.Nk, longest);
    if (p.Nq <= 2 * longest) few.push_back(p);
  }
  return few;
}

FullProblem parsed(const std::string& options) {
  GivenOptions given{{"--dtype", to_string(stage_dtype())}};
  std::istringstream words(options);
  for (std::string word, name; words >> word;) {
    const bool is_name = word.starts_with("--");
    if (is_name) name = word;
    given[name] = is_name ? "true" : word;
  }
  return make_problem(given);
}

std::vector<FullProblem> all_of(const std::string& options, std::initializer_list<const char*> more) {
  std::vector<FullProblem> problems;
  for (const char* each : more) problems.push_back(parsed(options + each));
  return problems;
}

std::vector<FullProblem> bias_gradients() {
  return affordable(
      all_of("--batch 2 --heads 4 --kv-heads 2 --seq-q 70 --seq-k 100 --bias matrix --bias-gradient --head-dim ",
             {"59 --bias-per-head false", "40 --causal --dropout 0.4 --dropout-seed 3",
              "59 --causal --bias-per-batch --bias-per-head false", "40 --softcap 0.5 --window 20,5 --bias-per-batch"}));
}

bool sanitized() { return one_of > 1; }

std::vector<FullProblem> counted(std::vector<FullProblem> problems) {
  if (sanitized()) problems.resize(1);
  return problems;
}

TEST_CASE("grid: lengths around tile edges") { check_variants_on(lengths(), /*by_thirds=*/true); }
TEST_CASE("grid: head dimensions") { check_variants_on(head_dims(), /*by_thirds=*/true); }
TEST_CASE("grid: biases") { check_variants_on(biases(), /*by_thirds=*/true); }
TEST_CASE("grid: heads and layouts") { check_variants_on(heads_and_layouts(), /*by_thirds=*/true); }

TEST_CASE("grid: every problem by every variant (long)") {  // at night
  if (!has_many_variants() || sanitized()) return;
  for (const auto& problems : {lengths(), head_dims(), biases(), heads_and_layouts()}) check_variants_on(problems);
}

TEST_CASE("grid: rows that see no key") {
  check_variants_on(affordable(all_of("--kv-heads 1 --head-dim 16 --causal --seq-q ",
                                      {"5 --seq-k 2", "40 --seq-k 33", "70 --seq-k 5", "130 --seq-k 64"})));
}

TEST_CASE("grid: windows") {
  std::vector<std::string> cases{"--seq-q 33 --seq-k 33 --window 0,0",
                                 "--seq-q 70 --seq-k 64 --window -1,3",           // the first 3 queries see nothing
                                 "--seq-q 20 --seq-k 75 --window 9,-1 --causal",  // no query sees the first 46 keys
                                 "--seq-q 40 --seq-k 30 --window 7,1000 --bias matrix",
                                 "--seq-q 130 --seq-k 257 --window 0,0 --bias vector",
                                 "--seq-q 257 --seq-k 130 --window 3,1 --bias alibi",
                                 "--seq-q 200 --seq-k 200 --window 1,-1 --causal",
                                 "--seq-q 64 --seq-k 400 --window 100,0",
                                 "--seq-q 64 --seq-k 400 --window 10,20 --causal --bias matrix",
                                 "--seq-q 1 --seq-k 300 --window 130,5",
                                 "--seq-q 300 --seq-k 1 --window 2,2"};
  for (const char* window :
       {"31,0", "32,0", "33,0", "63,0", "64,0", "65,0", "127,0", "128,0", "129,0", "15,15", "16,16", "17,17"})
    cases.push_back(std::string("--seq-q 150 --seq-k 170 --window ") + window);
  std::vector<FullProblem> problems;
  for (const std::string& options : cases)
    problems.push_back(parsed(options + (problems.size() % 2 == 0 ? " --heads 1" : " --kv-heads 1 --head-dim 40")));
  check_variants_on(affordable(problems));
}

TEST_CASE("grid: softcaps") {
  check_variants_on(affordable(all_of("--kv-heads 1 --seq-q 100 --seq-k 170 --head-dim 59 ",
                                      {"--softcap 0.5 --bias matrix", "--softcap 30 --scale 1.04",  // scores of some tens
                                       "--softcap 3 --causal --window 20,5 --bias alibi", "--softcap 100 --causal --scale 1.04",
                                       "--softcap 1e4 --window 20,5", "--softcap 1e8"})));
}

TEST_CASE("grid: dropout") {
  const std::string dropout = "--kv-heads 1 --head-dim 59 --dropout-seed 1099511627779 --dropout ";  // 2^40 + 3
  std::vector<FullProblem> problems = all_of("--batch 2 --seq-q 100 --seq-k 170 " + dropout,
                                             {"0.1", "0.5 --causal", "0.9 --bias matrix", "0.2 --window 20,5 --softcap 2"});
  problems.push_back(parsed(dropout + "0.3 --lengths 70,0,33:64,0:5"));
  check_variants_on(affordable(problems));
}

TEST_CASE("grid: the gradient of the bias") { check_variants_on(bias_gradients()); }

TEST_CASE("grid: hyperbolic scores") {
  std::vector<FullProblem> problems;
  for (const char* options :
       {"--batch 2 --seq-q 70 --seq-k 90 --head-dim 40 --scale 0.7",
        "--batch 2 --seq-q 70 --seq-k 90 --head-dim 59 --scale 2 --causal --bias alibi",
        "--batch 2 --seq-q 70 --seq-k 90 --head-dim 59 --scale 0.7 --bias matrix --bias-gradient --window 20,5 "
        "--softcap 2",
        "--lengths 17,0,5:20 --head-dim 59 --scale 0.7",
        // The first queries see no key, and a bias needs scores that are scaled first.
        "--batch 2 --seq-q 90 --seq-k 70 --head-dim 59 --scale 0.7 --causal --bias matrix --layout bnhd"}) {
    problems.push_back(parsed(std::string("--kv-heads 1 --score lorentz ") + options));
    problems.push_back(problems.back());
    problems.back().values = Values::centroid;
    if (problems.back().bias_gradient) problems[problems.size() - 2].dropout = {0.3f, 4};  // which centroids do not take
  }
  check_variants_on(affordable(problems));
}

TEST_CASE("grid: ragged batches") {
  check_variants_on(affordable(all_of(
      "--lengths ", {"17,0,35,1 --head-dim 40", "3:20,30:9,0:5,7:0,40 --kv-heads 1 --head-dim 40 --causal",
                     "0,33:20,0,40:45 --head-dim 40 --window 9,3 --bias alibi", "20,31,9 --head-dim 59 --causal --layout qkv",
                     "64,128,63,65,129 --layout bnhd", "1:300,300:1,64:65,65:64,0:0,31 --kv-heads 1 --head-dim 128 --causal",
                     "150,7,200:90,90:200 --heads 1 --head-dim 96 --causal --window 64,-1 --softcap 3 --layout kv",
                     "128:129,5,129:128 --kv-heads 1 --window 31,31 --softcap 0.5 --bias alibi --layout bnhd",
                     "257 --heads 1 --head-dim 40 --causal"})));
}

TEST_CASE("grid: every compiled tile size (long)") {
  std::vector<FullProblem> problems =
      all_of("--heads 4 --kv-heads 2 --seq-q 70 --seq-k 90 --head-dim 40 --causal --bias matrix ",
             {"", "--dropout 0.4 --dropout-seed 11"});
  for (const char* d : {"24", "40", "90", "111"}) {
    for (const char* values : {" --values tangent", " --values centroid"})
      problems.push_back(parsed(std::string("--kv-heads 1 --seq-q 70 --seq-k 90 --score lorentz --head-dim ") + d + values));
  }
  for (const int d : joined(std::vector{24, 40, 90, 111}, {200}, largest_head_dim() > 128)) {
    if (d == 40 || d == 111) problems.push_back(problem_of({.H = 1, .Hkv = 1, .Nq = 133, .Nk = 150, .d = d}));
    problems.push_back(problem_of({.H = 1, .Hkv = 1, .Nq = 150, .Nk = 133, .d = d}));
    problems.back().causal = true;
  }
  check_every_tile_on(in_all_dtypes(affordable(problems)));
}

TEST_CASE(
    "grid: a tiny problem on every compiled tile size") {  // try.sh runs it first: two rows or more of mma fragments for each warp
  std::vector<FullProblem> problems;
  for (const int d : joined(std::vector{24, 40, 90, 111}, {200}, largest_head_dim() > 128)) {
    problems.push_back(problem_of({.H = 1, .Hkv = 1, .Nq = 70, .Nk = 70, .d = d}));
  }
  check_every_tile_on(problems);
}

}  // namespace flash::grid
