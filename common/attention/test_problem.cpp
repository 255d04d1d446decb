#include "common/attention/problem.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <string>

namespace flash {

TEST_CASE("set_sizes says in one line what was given and what is allowed, and leaves the problem alone") {
  constexpr std::int64_t million = 1 << 20;
  struct Case {
    RequestedSizes sizes;
    std::string error;
    Layout layout = Layout::bhnd;
  };
  const Case cases[] = {
      {{.batch = 0}, "--batch 0: must be between 1 and 1073741824"},
      {{.heads = 0}, "--heads 0: must be between 1 and 1073741824"},
      {{.kv_heads = -2}, "--kv-heads -2: must be between 1 and 1073741824"},
      {{.seq_q = 0}, "--seq-q 0: must be between 1 and 1073741824"},
      {{.seq_k = std::int64_t{1} << 31}, "--seq-k 2147483648: must be between 1 and 1073741824"},
      {{.head_dim = 257}, "--head-dim 257: must be between 1 and 256"},
      {{.heads = 6, .kv_heads = 4}, "--heads 6 with --kv-heads 4: heads must be a multiple of kv-heads"},
      {{.seq_q = 5, .seq_k = 7},
       "--layout qkv with --seq-q 5 and --seq-k 7: packed QKV needs as many queries as keys",
       Layout::qkv},
      {{.heads = 4, .kv_heads = 2},
       "--layout qkv with --heads 4 and --kv-heads 2: packed QKV needs as many kv-heads as heads",
       Layout::qkv},
      {{.batch = 1, .heads = 1, .seq_q = 1 << 30, .seq_k = 1 << 30},  // scores of 2^62 bytes
       "--batch 1 with --heads 1, --seq-q 1073741824, --seq-k 1073741824, --head-dim 64: every tensor, the scores included, "
       "must "
       "stay below 2^62 bytes"},
      // The product of all sizes is 2^87: it would be 0 in 64 bits.
      {{.batch = million, .heads = million, .seq_q = million, .seq_k = million, .head_dim = 128},
       "--batch 1048576 with --heads 1048576, --seq-q 1048576, --seq-k 1048576, --head-dim 128: every tensor, the scores "
       "included, must stay below 2^62 bytes"},
  };
  for (const Case& test : cases) {
    FullProblem p;
    p.layout = test.layout;
    CHECK(set_sizes(p, test.sizes) == test.error);
    p.layout = Layout::bhnd;
    CHECK(describe(p) == describe({}));
  }
}

TEST_CASE("the largest sizes and the widest window keep the mask within an int") {
  FullProblem p;
  p.causal = true;
  p.Nq = 1;
  p.Nk = 1 << 30;
  CHECK(p.visible(0, p.Nk - 1));
  CHECK(p.end_key(0) == p.Nk);
  p.Nq = 1 << 30;
  CHECK(p.end_key(p.Nq - 1) == p.Nk);
  p.causal = false;
  p.window = {(1 << 30) - 1, (1 << 30) - 1};
  REQUIRE(check_options(p) == "");
  CHECK(p.end_key(p.Nq - 1) == p.Nk);
  CHECK(p.first_key(0) == 0);
  CHECK(p.end_query(p.Nk - 1) == p.Nq);
  CHECK(p.first_query(0) == 0);
  p.Nk = 1;
  p.causal = true;
  CHECK(p.end_key(0) == 0);
}

TEST_CASE("options that are none are refused in one line") {
  FullProblem p;
  for (const Window window : {Window{-2, 0}, Window{0, -2}, Window{1 << 30, 0}}) {
    p.window = window;
    CHECK(check_options(p) ==
          "--window is '" + to_string(window) + "'; allowed: left,right, each -1 for no bound, or 0 to 2^30-1");
  }
  p = {};
  for (const float c : {-1.0f, INFINITY, NAN, 1e-40f}) {
    p.softcap = c;
    CHECK(check_options(p).starts_with("--softcap is "));
  }
  p = {};
  for (const float probability : {-0.1f, 1.0f, NAN}) {
    p.dropout.probability = probability;
    CHECK(check_options(p).starts_with("--dropout is "));
  }
  p = {};
  p.bias_gradient = true;
  for (const BiasKind bias : {BiasKind::none, BiasKind::vector, BiasKind::alibi}) {
    p.bias = bias;
    CHECK(check_options(p) == std::string("--bias-gradient with --bias ") + to_string(bias) + "; allowed: --bias matrix");
  }
  p = {};
  p.values = Values::centroid;
  CHECK(check_options(p) == "--values centroid with --score dot; allowed: --score lorentz");
  p.score = Score::lorentz;
  p.dropout.probability = 0.1f;
  CHECK(check_options(p).starts_with("--values centroid with --dropout"));
  p = {};
  p.sequences = {{0, 28, 128}, {0, 28, 128}};
  p.bias = BiasKind::matrix;
  CHECK(check_options(p) == "--bias matrix with --lengths: allowed: none, alibi");
}

TEST_CASE("a problem with an option is not plain, and its line says which") {
  CHECK(FullProblem().is_plain());
  const auto check = [](FullProblem p, const std::string& words) {
    CHECK(check_options(p) == "");
    CHECK_FALSE(p.is_plain());
    CHECK(describe(p) == "B=1 H=2 Hkv=2 Nq=128 Nk=128 d=64" + words);
  };
  FullProblem p;
  p.window = {1024, -1};
  check(p, " window=1024,-1 fp32 bhnd bias=none");
  p = {};
  p.softcap = 30.0f;
  check(p, " softcap=30 fp32 bhnd bias=none");
  p = {};
  p.dropout = {0.25f, 7};
  check(p, " dropout=0.25 (seed 7) fp32 bhnd bias=none");
  p = {};
  p.bias = BiasKind::matrix, p.bias_gradient = true;
  check(p, " fp32 bhnd bias=matrix[1,2,128,128] and its gradient");
  p = {};
  p.score = Score::lorentz;
  p.values = Values::centroid;
  check(p, " score=lorentz values=centroid fp32 bhnd bias=none");
  p = {};
  p.sequences = {{0, 100, 100, 128}, {0, 100, 101, 128}};
  check(p, " lengths=100,0:1,28:27 fp32 bhnd bias=none");
  p.sequences = {std::vector<int>(13, 0), std::vector<int>(13, 0)};
  p.sequences.queries.push_back(128);
  p.sequences.keys.push_back(128);
  check(p, " lengths=0,... (13) fp32 bhnd bias=none");
}

}  // namespace flash
