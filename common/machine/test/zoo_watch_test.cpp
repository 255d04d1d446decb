// What the simulator sees because the compiler tells it of each access: races whatever their result, memory that nobody wrote, endless loops.
#include "common/machine/cpu/findings.hpp"
#include "common/machine/device.hpp"
#include "common/machine/hopper.cuh"
#include "common/machine/ptx.cuh"
#include "common/machine/test/zoo.hpp"
#include "common/machine/test/zoo_helper.hpp"

#include <algorithm>
#include <ctime>
#include <memory>
#include <new>
#include <vector>

namespace flash {
namespace {

__device__ inline int me() { return static_cast<int>(threadIdx.x); }

// ---- races, whose results may be right by luck in every order that was tried ------------------------------------------------------------

struct Memory {
  float in[1024] = {}, out[1024] = {};
  int turn = 0;
};

template <bool wrong>
__global__ void missing_barrier(Memory* m) {
  const SharedMatrix<float> tile{dynamic_shared<float>(128), 2, 64, 64};
  tile(me() / 64, me() % 64) = m->in[me()];  // BUG missing_barrier, write
  if (!wrong) __syncthreads();
  m->out[me()] = tile(1 - me() / 64, 63 - me() % 64);  // BUG missing_barrier, read
}

template <bool wrong>
__global__ void ldmatrix_too_early(Memory* m) {
  unsigned* const words = dynamic_shared<unsigned>(32);
  words[me()] = __float_as_uint(m->in[me()]);  // BUG ldmatrix_too_early, write
  if (!wrong) __syncwarp();
  unsigned r[1];
  ldmatrix_x1_trans(r, words + me() % 8 * 4);  // BUG ldmatrix_too_early, read
  m->out[me()] = __uint_as_float(r[0]);
}

/// Each block reads what the one before it has written.
__device__ inline int block() { return static_cast<int>(blockIdx.x); }
__global__ void missing_release(Memory* m) {
  wait_until_equal(&m->turn, block());
  m->out[block()] = m->in[block()];  // BUG missing_release, read
  m->in[block() + 1] = 1.0f;         // BUG missing_release, write
  atomicAdd(&m->turn, 1);
}
__global__ void missing_acquire(Memory* m) {
  while (atomicAdd(&m->turn, 0) != block()) {
  }
  m->out[block()] = m->in[block()];  // BUG missing_acquire, read
  m->in[block() + 1] = 1.0f;         // BUG missing_acquire, write
  add_release(&m->turn, 1);
}
__global__ void in_turn(Memory* m) {
  wait_until_equal(&m->turn, block());
  m->out[block()] = m->in[block()];
  m->in[block() + 1] = 1.0f;
  add_release(&m->turn, 1);
}

/// One thread waits, one reads, one writes and one releases; barriers order them.
template <bool wrong>
__global__ void released_too_early(Memory* m) {
  if (me() == 0) wait_until_equal(&m->turn, block());
  __syncthreads();
  if (me() == 32) m->out[block()] = m->in[block()];  // BUG released_too_early, read
  if (me() == 63) m->in[block() + 1] = 1.0f;         // BUG released_too_early, write
  if (!wrong) __syncthreads();
  if (me() == 1) add_release(&m->turn, 1);
}

struct RaceCase {
  std::string name;
  void (*wrong)(Memory*);
  void (*right)(Memory*);
  unsigned blocks, threads;
};
#define BOTH(kernel) #kernel, kernel < true>, kernel < false>
const RaceCase race_cases[] = {
    {BOTH(missing_barrier), 1, 128},
    {BOTH(ldmatrix_too_early), 1, 32},
    {"missing_release", missing_release, in_turn, 64, 1},
    {"missing_acquire", missing_acquire, in_turn, 64, 1},
    {BOTH(released_too_early), 64, 64},
};
#undef BOTH

std::vector<Race> races_of(const RaceCase& which, void (*kernel)(Memory*)) {
  reset_findings();
  set_options({.watch = true});
  const std::unique_ptr<Device> device = open_cpu();
  const Buffer buffer(*device, sizeof(Memory));
  launch(which.name.c_str(), {dim3(which.blocks), dim3(which.threads), 1024}, kernel, new (buffer.data()) Memory);
  set_options({});
  return findings().races;
}

// ---- shared memory that nobody wrote ----------------------------------------------------------------------------------------------

__global__ void unwritten_dynamic(float* out, int first) {
  float* const sums = dynamic_shared<float>(32);
  if (me() >= first) sums[me()] = 0.0f;
  out[me()] = sums[me()] + 1.0f;  // BUG unwritten_dynamic
}
/// g++ keeps the static variables of templates apart from others.
template <int Count>
__global__ void unwritten_static(float* out, int first) {
  __shared__ float sums[Count];
  if (me() >= first) sums[me()] = 0.0f;
  out[me()] = sums[me()] + 1.0f;  // BUG unwritten_static
}

/// The lines of the reads that a launch with Options::watch reports.
template <class... Parameters, class... Arguments>
std::vector<std::string> unwritten(void (*kernel)(Parameters...), Arguments... arguments) {
  reset_findings();
  set_options({.watch = true});
  CHECK(report(32, 512, kernel, arguments...) == "");
  set_options({});
  CHECK(findings().races.empty());
  CHECK(findings().complete);
  std::vector<std::string> lines;
  for (const UnwrittenRead& read : findings().unwritten) lines.push_back(read.line);
  return lines;
}

void check_lines(const std::vector<std::string>& lines, const std::string& bug) {
  CAPTURE(bug);
  REQUIRE(lines.size() == 1);
  CAPTURE(lines.front());
  CHECK(lines.front().ends_with(bug));
}

// ---- global memory that no launch wrote -------------------------------------------------------------------------------------------------

__global__ void fill(float* out, int count) {
  if (me() < count) out[me()] = 1.0f;
}
__global__ void copy(const float* in, float* out) {
  out[me()] = in[me()];  // BUG unwritten_global
}

/// Launched early, what the previous kernel writes is there only behind a wait: of the thread itself, or of one that it has met since.
__global__ void copy_early(const float* in, float* out, int waiting, int meet) {
  if (me() < waiting) griddepcontrol_wait();
  if (meet != 0) __syncthreads();
  out[me()] = in[me()];  // BUG early
}

// ---- helpers ----------------------------------------------------------------------------------------------------------------------------

__global__ void neighbours(float* out) {
  float* const tile = dynamic_shared<float>(32);
  store_apart(tile, me());                          // BUG calls store
  out[me()] = load_inlined(tile, (me() + 1) % 32);  // BUG calls load
}

// ---- bank conflicts ---------------------------------------------------------------------------------------------------------------------

/// A view's accesses are counted elsewhere, wide ones too.
__global__ void walk_columns_of_view(float* out) {
  __shared__ __align__(16) float tile[32][32];
  const SharedMatrix<float> view{&tile[0][0], 32, 32, 32};
  for (int row = 0; row < 32; ++row) view(row, me()) = 1.0f;
  __syncwarp();
  const float4 four = view.as<float4>(me(), 0);
  out[me()] = view(me(), 5) + four.x + four.w;
}

// ---- endless loops ------------------------------------------------------------------------------------------------------------------

__global__ void endless_reads(const float* in, float* out, int step) {
  for (int i = 0; i < 1000; i += step) out[0] += in[i];  // BUG endless_reads
}
/// The view is the simulator's code, which calls functions of its own.
__global__ void endless_view(Matrix<const float> in, float* out, int step) {
  float sum = 0.0f;
  for (int i = 0; i < 1000; i += step) sum += in(0, i);  // BUG endless_view
  out[me()] = sum;
}
__global__ void endless_barriers(float* out, int step) {
  for (int i = 0; i < 1000; i += step) {
    __syncthreads();  // BUG endless_barriers
    if (step != 0 && me() == 0) out[0] += 1.0f;
  }
}
__global__ void endless_shuffles(float* out, int step) {
  for (int i = 0; i < 1000; i += step) out[me()] = __shfl_xor_sync(0xffffffffu, out[me()], 1);  // BUG endless_shuffles
}
__global__ void endless_spin(const volatile int* flag) {
  while (*flag == 0) {  // BUG endless_spin
  }
}
__global__ void endless_arithmetic(unsigned* out, unsigned start) {
  unsigned n = start;
  // Without the asm the compiler may take for granted that the loop ends.
  for (; n != 1; n *= 2) asm volatile("" : "+r"(n));  // BUG endless_arithmetic
  *out = n;
}

}  // namespace

TEST_CASE("zoo: races are found by watching, whatever the result is") {
  REQUIRE(can_watch());
  for (const RaceCase& each : race_cases) {
    CAPTURE(each.name);
    CHECK(races_of(each, each.right).empty());
    const std::vector<Race> races = races_of(each, each.wrong);
    const std::string write = BUG(each.name + ", write"), read = BUG(each.name + ", read");
    const auto named = [&](const Race& race) {
      const auto is = [&](const std::string& line, const std::string& expected) { return line.ends_with(expected); };
      return (is(race.first_line, write) && is(race.second_line, read)) ||
             (is(race.first_line, read) && is(race.second_line, write));
    };
    CHECK(std::ranges::any_of(races, named));
  }
}

TEST_CASE("zoo: a race says which threads, which lines and which memory") {
  const std::vector<Race> races = races_of(race_cases[0], race_cases[0].wrong);
  REQUIRE(!races.empty());
  CHECK(races.front().rule() == RuleId::race);
  const std::string text = sentence(races.front());
  CAPTURE(text);
  CHECK(has(text, {"common/machine/test/zoo_watch_test.cpp:", " writes and common/machine/test/zoo_watch_test.cpp:",
                   " reads the same shared memory, threads (", ",0,0) and (",
                   " of block (0,0,0), with no barrier between them (kernel missing_barrier)"}));
}

TEST_CASE("zoo: a race in a helper says who called it") {
  std::vector<float> out(32);
  reset_findings();
  set_options({.watch = true});
  CHECK(report(32, 256, neighbours, out.data()) == "");
  set_options({});
  REQUIRE(findings().races.size() == 1);
  CHECK_REPORT(
      sentence(findings().races[0]), helper_line("store apart"), " writes and ", helper_line("load inlined"), " reads",
      "(kernel zoo, called from common/machine/test/" + BUG("calls store") + " and common/machine/test/" + BUG("calls load"));
}

TEST_CASE("zoo: shared memory that nobody wrote") {
  std::vector<float> out(32);
  check_lines(unwritten(unwritten_dynamic, out.data(), 1), BUG("unwritten_dynamic"));
  CHECK(unwritten(unwritten_dynamic, out.data(), 0).empty());
  check_lines(unwritten(unwritten_static<32>, out.data(), 1), BUG("unwritten_static"));
  CHECK(unwritten(unwritten_static<32>, out.data(), 0).empty());
}

TEST_CASE("zoo: global memory that no launch wrote") {
  const std::unique_ptr<Device> device = open_cpu();
  const Buffer in(*device, 32 * sizeof(float)), out(*device, 32 * sizeof(float));
  float* const values = static_cast<float*>(in.data());
  for (const int count : {32, 31}) {
    device->poison(in.data(), in.bytes());
    reset_findings();
    set_options({.watch = true});
    CHECK(report(32, 0, fill, values, count) == "");
    CHECK(report(32, 0, copy, values, static_cast<float*>(out.data())) == "");
    set_options({});
    CHECK(was_written(values, 31 * sizeof(float)));
    CHECK(was_written(values + 31, sizeof(float)) == (count == 32));
    CHECK(writer_near(values) == "kernel zoo, 1 x 1 x 1 blocks of 32 x 1 x 1 threads,");
    REQUIRE(findings().unwritten.size() == (count == 32 ? 0 : 1));
    if (count == 32) continue;
    const UnwrittenRead read = findings().unwritten.front();
    CHECK_REPORT(sentence(read), BUG("unwritten_global"), " reads global memory that no thread has written, thread (31,0,0)");
    CHECK(read.address == reinterpret_cast<std::uintptr_t>(values + 31));
  }
  reset_findings();
  set_options({.watch = true, .watch_limit = 30});  // it is not known who wrote
  CHECK(report(32, 0, fill, values, 31) == "");
  CHECK(report(32, 0, copy, values, static_cast<float*>(out.data())) == "");
  set_options({});
  CHECK(!findings().complete);
  CHECK(findings().unwritten.empty());
}

TEST_CASE("zoo: a kernel that is launched early reads what the previous one writes") {
  const std::unique_ptr<Device> device = open_cpu();
  const Buffer in(*device, 32 * sizeof(float)), out(*device, 32 * sizeof(float));
  float *const values = static_cast<float*>(in.data()), *const results = static_cast<float*>(out.data());
  const auto reads = [&](bool early, int waiting, int meet) {
    reset_findings();
    set_options({.watch = true});
    CHECK(report(32, 0, fill, values, 32) == "");
    launch("early", {.grid = dim3(1), .block = dim3(32), .early = early}, copy_early, values, results, waiting, meet);
    set_options({});
    return findings().unwritten;
  };
  CHECK(reads(true, 32, 0).empty());
  CHECK(reads(true, 1, 1).empty());
  CHECK(reads(false, 0, 0).empty());
  for (const int waiting : {0, 31}) {
    const std::vector<UnwrittenRead> found = reads(true, waiting, 0);
    REQUIRE(found.size() == 1);
    CHECK_REPORT(sentence(found.front()), BUG("early"),
                 " reads global memory that the previous kernel may not have written yet");
  }
}

TEST_CASE("zoo: bank conflicts of views are not those of plain arrays") {
  std::vector<float> out(32);
  reset_findings();
  set_options({.watch = true});
  CHECK(report(32, 0, walk_columns_of_view, out.data()) == "");
  set_options({});
  CHECK(findings().conflicts.empty());
}

TEST_CASE("zoo: endless loops end with kernel, block, thread and line") {
  std::vector<float> in(1000), out(32);
  const Matrix<const float> row{in.data(), 1, 1000, 1000};
  int flag = 0;
  unsigned number = 0;
  for (const bool count : {false, true}) {
    set_options({.steps = 200'000, .count = count});
    const auto ends = [](const std::string& text, const std::string& line) {
      CAPTURE(text);
      CHECK(has(text, {"endless_loop: kernel zoo, block (0,0,0), thread (", "200000 steps", line}));
    };
    ends(report(32, 0, endless_reads, in.data(), out.data(), 0), BUG("endless_reads"));
    ends(report(32, 0, endless_view, row, out.data(), 0), BUG("endless_view"));
    ends(report(32, 0, endless_barriers, out.data(), 0), BUG("endless_barriers"));
    ends(report(32, 0, endless_shuffles, out.data(), 0), BUG("endless_shuffles"));
    ends(report(32, 0, endless_spin, &flag), BUG("endless_spin"));
    CHECK(report(32, 0, endless_reads, in.data(), out.data(), 10) == "");
    CHECK(report(32, 0, endless_barriers, out.data(), 10) == "");
  }
  set_options({.steps = 200'000, .seconds = 1});
  const std::clock_t began = std::clock();
  CHECK_REPORT(report(32, 0, endless_barriers, out.data(), 0), "endless_loop: ");
  CHECK(std::clock() - began < 2.5 * CLOCKS_PER_SEC);
  set_options({.watch = true});
  CHECK_REPORT(report(32, 0, endless_spin, &flag), "deadlock: kernel zoo, block (0,0,0), thread (", "waits in a loop",
               BUG("endless_spin"));
#ifdef __linux__
  set_options({.idle_seconds = 1});
  CHECK_REPORT(report(32, 0, endless_arithmetic, &number, 4u),
               "endless_loop: kernel zoo, block (0,0,0), thread (0,0,0): ", BUG("endless_arithmetic"));
#endif
  set_options({});
}

}  // namespace flash
