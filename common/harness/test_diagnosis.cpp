// A kernel with a mistake in it, and what the diagnosis says. Each mistake has its twin: the same kernel without one.
#include "common/harness/diagnosis.hpp"
#include "common/harness/inputs.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/test/zoo.hpp"
#include "common/parts/kernel.cuh"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace flash {
namespace {

enum class Mistake { none, late_race, early_race, unwritten, sign, sum, grid, guard, scale, ticket, nan };

constexpr int ROWS = 32;

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
    float s = 0.0f;
    for (int c = 0; exists && c < problem.d; ++c) s += Q(i, c) * K_row[c];  // BUG read
    if (mistake != Mistake::late_race) __syncthreads();                     // BUG ticket barrier
    const float p = expf(mistake == Mistake::scale ? s : problem.scale * s);
    l += mistake == Mistake::sum ? 2.0f * p : p;
    for (int c = 0; exists && c < problem.d; ++c) O[c] += p * V(j, c);
  }
  if (!exists) return;
  const float factor = mistake == Mistake::sign ? -1.0f : mistake == Mistake::nan ? sqrtf(-1.0f) : 1.0f;
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

/// Stores the threads in the order in which they come.
__global__ void order_kernel(Tensor<float> dQ) {
  __shared__ int stored;
  if (threadIdx.x == 0) stored = 0;
  __syncthreads();
  dQ.head(0, 0)(atomicAdd(&stored, 1), 0) = static_cast<float>(threadIdx.x);
}

void backward(const Attention& a) {
  launch("order", {dim3(1), dim3(static_cast<unsigned>(a.problem.Nq))}, order_kernel, view<float>(a.dQ));
}

FullProblem small_problem(int H, int Hkv, int Nq, int Nk) {
  FullProblem p;
  p.H = H, p.Hkv = Hkv, p.Nq = Nq, p.Nk = Nk, p.d = 16;
  return p;
}

RunRecord run(const Variant& variant, Pass pass, int Nq) {
  RunRecord run;
  run.variant = variant;
  run.problem = small_problem(1, 1, Nq, 20);
  run.problem.d = 40;
  run.problem.scale = 0.15f;
  const std::unique_ptr<Device> device = open_cpu();
  run.device = device->info();
  const Inputs inputs = make_inputs(run.problem, pass);
  Runner runner(*device, run.variant, run.problem, inputs, pass);
  runner.run();
  const Results<float> got = runner.results();
  run.check = Checker(run.problem, inputs, pass, Sample{}).check(got);
  diagnose(runner, inputs, Sample{}, got, run);
  return run;
}

template <Mistake mistake>
RunRecord run(int Nq = 20) {
  return run({.name = "mistaken", .idea = "", .forward = forward<mistake>}, Pass::forward, Nq);
}

/// All that the diagnosis says, a line each, and first its rules.
std::string all(const RunRecord& run) {
  std::string text;
  for (const std::string& rule : run.diagnosis.rules) text += rule + "\n";
  for (const BrokenRule& mistake : run.diagnosis.mistakes) text += mistake.text + "\n";
  for (const std::string& hint : run.diagnosis.hints) text += hint + "\n";
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
  const BrokenRule& race = early.diagnosis.mistakes.at(0);
  CHECK((race.rule == "race" && has(race.lines.at(0) + race.lines.at(1), {BUG("write"), BUG("read")})));
  CHECK_FALSE(simt::options().watch);  // as before, and in the usual order
  CHECK(simt::options().order == simt::Order::forward);

  const RunRecord late = run<Mistake::late_race>();
  CHECK(!late.diagnosis.mistakes.empty());
  CHECK(!late.passed());
  CHECK(has(json_of(late), {"\"check\"", "\"passed\": false", "\"threads\"", "\"passed\": false"}));
}

/// Does a kernel with a mistake, but without a race, lead to a diagnosis with all these parts?
template <Mistake mistake>
void check_said(std::initializer_list<std::string> parts, int Nq = 20) {
  const RunRecord found = run<mistake>(Nq);
  CAPTURE(all(found));
  CHECK(found.diagnosis.mistakes.empty());
  CHECK(has(all(found), parts));
}

TEST_CASE("diagnosis: what a mistake without a race is told by") {
  check_said<Mistake::unwritten>({BUG("read") + " reads shared memory that no thread has written"});
  check_said<Mistake::sign>({"the arithmetic is wrong", "look at O = P V", "the elements of o are about -1 times",
                             "the worst element of o was written at ", BUG("stores O") + ", thread ("});
  check_said<Mistake::sum>({"lse and o are wrong", "the elements of o are about 0.5 times"});
  check_said<Mistake::nan>({"the arithmetic is wrong", "NaN: 0 / 0"});
  check_said<Mistake::scale>({"the arithmetic is wrong", "o and lse are right for scale = 1"});
  check_said<Mistake::ticket>(
      {"thread_order", "depends on the order of the threads: FLASH_SIMT_ORDER=reverse", "No race explains that"});
  check_said<Mistake::grid>(
      {"no thread has written all of O in rows 32 to 69 (batch 0, head 0)", "1 x 1 x 1 blocks of 32 x 1 x 1"}, 70);
  check_said<Mistake::guard>({"no thread has written all of L in row 19 (batch 0, head 0)"});
}

TEST_CASE("diagnosis: the order of the threads may show in a dQ that atomics sum, and in no other") {
  for (const bool atomic_dQ : {false, true}) {
    const RunRecord found =
        run({.name = "", .idea = "", .forward = forward<Mistake::none>, .backward = backward, .atomic_dQ = atomic_dQ},
            Pass::backward, 20);
    CHECK(has(all(found), {"depends on the order of the threads"}) != atomic_dQ);
  }
}

/// What the diagnosis says of the results of another problem: O and L as a plain implementation has them.
std::string diagnosed(const FullProblem& p, const Inputs& inputs, const Results<float>& got) {
  const CheckReport check = Checker(p, inputs, Pass::forward, Sample{}).check(got);
  REQUIRE(!check.passed);
  return solved_instead(p, inputs, got, check, Sample{});
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
  const Inputs inputs = make_inputs(p, Pass::forward);
  const struct {
    bool causal;
    bool (*sees)(int, int);
    const char* expected;
  } cases[]{{true, [](int i, int j) { return j <= i + 11; }, "see one key more"},
            {true, [](int i, int j) { return j <= i + 9; }, "see one key fewer"},
            {true, [](int i, int j) { return j <= i; }, "begins at the top left"},
            {false, [](int, int j) { return j < 29; }, "o and lse are right without the last key"},
            {false, [](int, int j) { return j > 0; }, "without the first key"}};
  for (const auto& [causal, sees, expected] : cases) {
    p.causal = causal;
    CHECK(has(diagnosed(p, inputs, masked(p, inputs, sees)), {expected}));
  }
  CHECK(diagnosed(p, inputs, masked(p, inputs, [](int i, int j) { return j != i; })) == "");
}

TEST_CASE("diagnosis: keys past the end that count as scores of 0") {
  const FullProblem p = small_problem(1, 1, 40, 50);
  const Inputs inputs = make_inputs(p, Pass::forward);
  Results<float> padded = naive_same_precision(p, inputs, Pass::forward);
  for (float& L : padded.L.values) L = std::log(std::exp(L) + 14.0f);
  CHECK(has(diagnosed(p, inputs, padded), {"lse is right for 14 more keys with score 0"}));
  padded.L.values.back() += 0.1f;
  CHECK(diagnosed(p, inputs, padded) == "");
  for (float& L : padded.L.values) L = 200.0f;
  CHECK(diagnosed(p, inputs, padded) == "");
}

TEST_CASE("diagnosis: empty rows are named if they alone are wrong") {
  FullProblem p;
  p.Nq = 7, p.Nk = 4;
  p.causal = true;
  CheckReport check{.passed = false, .sampled = false, .tensors = std::vector<TensorCheck>(2)};
  TensorCheck &dq = check.tensors[0], &dk = check.tensors[1];
  dq.tensor = "dq", dk.tensor = "dk";
  dq.wrong_rows = {{0, 1, 2}, {0, 0, 0}};
  dk.passed = true;
  CHECK(only_empty_rows_wrong(p, check) != "");
  dk.passed = false;
  CHECK(only_empty_rows_wrong(p, check) == "");
  dk.passed = true;
  dq.wrong_rows.push_back({0, 0, 3});  // sees a key
  CHECK(only_empty_rows_wrong(p, check) == "");
}

TEST_CASE("diagnosis: a score that fp32 or exp cannot hold, of a key that the row sees") {
  FullProblem p;
  p.B = p.H = p.Hkv = p.Nq = 1;
  p.Nk = 2, p.d = 1;
  p.scale = 1, p.input = InputKind::ones;
  p.bias = BiasKind::vector;
  Inputs inputs = make_inputs(p, Pass::forward);
  const auto explains = [&](float first, float second, bool subtracts_max, std::int64_t non_finite) {
    Variant variant;
    variant.subtracts_max = subtracts_max;
    inputs.K.values = {first, second};
    TensorCheck o;
    o.tensor = "o";
    o.non_finite = non_finite;
    return score_out_of_range(variant, p, inputs, {.passed = false, .sampled = false, .tensors = {o}});
  };
  constexpr float infinity = std::numeric_limits<float>::infinity();
  inputs.bias.values = {0, 0};
  CHECK(explains(1, 100, false, 1).find("is 100, ") != std::string::npos);
  CHECK(explains(1, 100, false, 0) == "");  // finite: something else is wrong
  CHECK(explains(1, 100, true, 1) == "");
  CHECK(explains(-100, -90, false, 0).find("is -90, ") != std::string::npos);
  CHECK(explains(-100, 1, false, 0) == "");
  p.scale = 1e38f;
  CHECK(explains(10, 1, true, 0).find("overflow fp32") != std::string::npos);
  CHECK(explains(-10, -10, true, 0).find("overflow fp32") != std::string::npos);
  inputs.bias.values = {-infinity, 0};
  CHECK(explains(10, 1, true, 0) == "");  // masked
  inputs.bias.values = {-infinity, -infinity};
  CHECK(explains(10, 10, true, 1) == "");
}

}  // namespace flash
