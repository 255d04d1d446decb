// A kernel with a mistake in it, and what the diagnosis says. Each mistake has its twin: the same kernel without one.
#include "common/harness/diagnosis.hpp"
#include "common/harness/hypotheses.hpp"
#include "common/harness/inputs.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/test/zoo.hpp"
#include "common/parts/kernel.cuh"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace flash {
namespace {

enum class Mistake { none, late_race, early_race, unwritten, sign, sum, grid, guard, scale, unset, ticket };

constexpr int ROWS = 32;

/// A value that an uninitialised variable may hold: one that other threads have left on the stack.
__attribute__((noinline, no_sanitize("thread"))) float leftover() {
  static float left = 0.0f;
  return left += 0.01f;
}

/// A thread per query; the scores of a key pass through shared memory, so that a barrier can be missing. Grid: (tiles of queries, H, B).
template <Mistake mistake>
__global__ void attention_kernel(Problem problem, Tensor<const float> Q_all, Tensor<const float> K_all,
                                 Tensor<const float> V_all, Tensor<float> O_all, Tensor<float> L_all) {
  __shared__ float K_row[128];
  __shared__ int stored;  // rows
  if (mistake == Mistake::ticket && threadIdx.x == 0) stored = 0;
  const int b = blockIdx.z, h = blockIdx.y, i = blockIdx.x * ROWS + threadIdx.x;
  const bool exists = i < (mistake == Mistake::guard ? problem.Nq - 1 : problem.Nq);
  const Matrix<const float> Q = Q_all.head(b, h), K = K_all.head(b, problem.kv_head(h)), V = V_all.head(b, problem.kv_head(h));
  float l = 0.0f, O[128] = {};
  for (int j = 0; j < problem.Nk; ++j) {
    const int first = mistake == Mistake::unwritten ? 1 : 0;
    for (int c = first + threadIdx.x; c < problem.d; c += ROWS) K_row[c] = K(j, c);  // BUG write
    if (mistake != Mistake::early_race) __syncthreads();
    float s = mistake == Mistake::unset ? leftover() : 0.0f;
    for (int c = 0; exists && c < problem.d; ++c) s += Q(i, c) * K_row[c];  // BUG read
    if (mistake != Mistake::late_race) __syncthreads();                     // BUG ticket barrier
    const float p = expf(mistake == Mistake::scale ? s : problem.scale * s);
    l += mistake == Mistake::sum ? 2.0f * p : p;
    for (int c = 0; exists && c < problem.d; ++c) O[c] += p * V(j, c);
  }
  if (!exists) return;
  const float factor = mistake == Mistake::sign ? -1.0f : 1.0f;
  const int row = mistake == Mistake::ticket ? problem.Nq - 1 - atomicAdd(&stored, 1) : i;
  for (int c = 0; c < problem.d; ++c) O_all.head(b, h)(row, c) = factor * O[c] / l;  // BUG stores O
  L_all.head_vector(b, h)(row) = logf(l);
}

template <Mistake mistake>
void forward(const Attention& a) {
  const FullProblem& p = a.problem;
  const int rows = mistake == Mistake::grid ? ROWS : p.Nq;
  launch("attention", {dim3(blocks_for(rows, ROWS), static_cast<unsigned>(p.H), static_cast<unsigned>(p.B)), dim3(ROWS)},
         attention_kernel<mistake>, p, view<const float>(a.Q), view<const float>(a.K), view<const float>(a.V), view<float>(a.O),
         view<float>(a.L));
}

template <Mistake mistake>
RunRecord run(int Nq = 20) {
  RunRecord run;
  run.variant = {.name = "mistaken", .idea = "", .forward = forward<mistake>};
  run.problem.B = run.problem.H = run.problem.Hkv = 1;
  run.problem.Nq = Nq;
  run.problem.Nk = 20;
  run.problem.d = 40;
  run.problem.scale = 0.15f;
  const std::unique_ptr<Device> device = open_cpu();
  run.device = device->info();
  const Inputs inputs = make_inputs(run.problem, InputKind::normal, 1, Pass::forward);
  Runner runner(*device, run.variant, run.problem, inputs, Pass::forward);
  runner.run();
  const Results<float> got = runner.results();
  run.check = check_results(run.problem, inputs, Pass::forward, got, Sample{});
  run.diagnosis = diagnose(runner, inputs, Sample{}, got, run);
  return run;
}

/// All that the diagnosis says, a line each.
std::string all(const RunRecord& run) {
  std::string text;
  for (const std::string& mistake : run.diagnosis->mistakes) text += mistake + "\n";
  for (const std::string& hint : run.diagnosis->hints) text += hint + "\n";
  return text;
}

}  // namespace

TEST_CASE("diagnosis: a right kernel has none") {
  const RunRecord right = run<Mistake::none>();
  CHECK(right.check->passed);
  CHECK(all(right) == "");
  CHECK(right.passed());
}

TEST_CASE("diagnosis: a missing barrier, with both lines, whatever the result is") {
  const RunRecord early = run<Mistake::early_race>();
  CAPTURE(all(early));
  CHECK(!early.check->passed);
  CHECK(has(all(early), {BUG("write") + " writes and ", BUG("read") + " reads the same shared memory"}));
  CHECK(has(all(early), {"depends on the order of the threads"}));
  CHECK_FALSE(simt::options().watch);  // as before, and in the usual order
  CHECK(simt::options().order == simt::Order::forward);

  const RunRecord late = run<Mistake::late_race>();
  CHECK(!late.diagnosis->mistakes.empty());
  CHECK(!late.passed());
  CHECK(has(json_of(late), {"\"check\"", "\"passed\": false", "\"threads\"", "\"passed\": false"}));
}

/// Does a kernel with a mistake, but without a race, lead to a diagnosis with all these parts?
template <Mistake mistake>
void check_said(std::initializer_list<std::string> parts, int Nq = 20) {
  const RunRecord found = run<mistake>(Nq);
  CAPTURE(all(found));
  CHECK(found.diagnosis->mistakes.empty());
  CHECK(has(all(found), parts));
}

TEST_CASE("diagnosis: what a mistake without a race is told by") {
  check_said<Mistake::unwritten>({BUG("read") + " reads shared memory that no thread has written"});
  check_said<Mistake::sign>({"the arithmetic is wrong", "look at O = P V", "the elements of o are about -1 times",
                             "the worst element of o was written at ", BUG("stores O") + ", thread ("});
  check_said<Mistake::sum>({"lse and o are wrong", "the elements of o are about 0.5 times"});
  check_said<Mistake::scale>({"the arithmetic is wrong", "o and lse are right for scale = 1"});
  check_said<Mistake::unset>({"depends on the order of the threads", "No race explains that"});
  check_said<Mistake::ticket>({"FLASH_SIMT_ORDER=reverse", "No race explains that"});  // an atomic whose order counts
  check_said<Mistake::grid>(
      {"no thread has written all of O in rows 32 to 69 (batch 0, head 0)", "1 x 1 x 1 blocks of 32 x 1 x 1"}, 70);
  check_said<Mistake::guard>({"no thread has written all of L in row 19 (batch 0, head 0)"});
}

/// What the diagnosis says of the results of another problem: O and L as a plain implementation has them.
std::string said_of(const FullProblem& p, const Inputs& inputs, const Results<float>& got) {
  const CheckReport check = check_results(p, inputs, Pass::forward, got, Sample{});
  REQUIRE(!check.passed);
  std::string text = solved_instead(p, inputs, got, Sample{});
  for (const std::string& hint : row_hints(p, inputs, got, check, Sample{})) text += "\n" + hint;
  return text;
}

FullProblem small_problem(int H, int Hkv, int Nq, int Nk) {
  FullProblem p;
  p.H = H, p.Hkv = Hkv, p.Nq = Nq, p.Nk = Nk, p.d = 16;
  return p;
}

/// O and L of the problem where query i sees key j if sees(i, j).
template <class Sees>
Results<float> masked(FullProblem p, Inputs inputs, Sees&& sees) {
  p.causal = false;
  p.bias = BiasKind::matrix;
  p.bias_per_head = false;
  inputs.bias = HostTensor<float>({1, 1, p.Nq, p.Nk});
  for (int i = 0; i < p.Nq; ++i) {
    for (int j = 0; j < p.Nk; ++j) inputs.bias(0, 0, i, j) = sees(i, j) ? 0.0f : -std::numeric_limits<float>::infinity();
  }
  return naive_same_precision(p, inputs, Pass::forward);
}

TEST_CASE("diagnosis: which keys were seen instead") {
  FullProblem p = small_problem(2, 2, 20, 30);
  const Inputs inputs = make_inputs(p, InputKind::normal, 1, Pass::forward);
  const struct {
    bool causal;
    bool (*sees)(int, int);
    const char* said;
  } cases[]{{true, [](int i, int j) { return j <= i + 11; }, "see one key more"},
            {true, [](int i, int j) { return j <= i + 9; }, "see one key fewer"},
            {true, [](int i, int j) { return j <= i; }, "begins at the top left"},
            {false, [](int, int j) { return j < 29; }, "o and lse are right without the last key"},
            {false, [](int, int j) { return j > 0; }, "without the first key"}};
  for (const auto& [causal, sees, said] : cases) {
    p.causal = causal;
    CHECK(has(said_of(p, inputs, masked(p, inputs, sees)), {said}));
  }
  CHECK(said_of(p, inputs, masked(p, inputs, [](int i, int j) { return j != i; })) == "");
  Results<float> of_lse = masked(p, inputs, [](int, int j) { return j < 29; });
  for (float& o : of_lse.O.values) o += 1.0f;
  CHECK(has(said_of(p, inputs, of_lse), {"lse is right without the last key"}));
}

TEST_CASE("diagnosis: what the wrong rows have in common") {
  const FullProblem p = small_problem(1, 1, 40, 50);
  const Inputs inputs = make_inputs(p, InputKind::normal, 1, Pass::forward);
  const Results<float> right = naive_same_precision(p, inputs, Pass::forward);
  Results<float> late = right, padded = right;
  for (int i = 0; i < p.Nq; ++i) {
    const std::vector<float> scores = scores_in_fp32(p, inputs, 0, 0, i);
    if (std::ranges::max_element(scores) - scores.begin() > 15) late.L(0, 0, i, 0) += 0.3f;
    padded.L(0, 0, i, 0) = std::log(std::exp(right.L(0, 0, i, 0)) + 14.0f);
  }
  CHECK(has(said_of(p, inputs, late), {"the rows of lse whose largest score is at a key up to 15 are right"}));
  CHECK(has(said_of(p, inputs, padded), {"lse is right for 14 more keys with score 0"}));
  for (float& L : padded.L.values) L = 200.0f;
  CHECK_FALSE(has(said_of(p, inputs, padded), {"more keys with score 0"}));

  FullProblem low = p;
  low.scale = -60.0f;
  const Inputs ones = make_inputs(low, InputKind::ones, 1, Pass::forward);
  Results<float> from_zero = naive_same_precision(low, ones, Pass::forward);
  for (float& L : from_zero.L.values) L = -std::numeric_limits<float>::infinity();
  CHECK(has(said_of(low, ones, from_zero), {"does the maximum start at -infinity?"}));

  Results<float> unset = right;
  for (float& o : unset.O.values) o = std::numeric_limits<float>::quiet_NaN();
  CHECK(has(said_of(p, inputs, unset), {"a local variable that no one has written"}));
}

}  // namespace flash
