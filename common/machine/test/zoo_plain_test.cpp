// What a plain CUDA file does, by way of the front door: memory of its own calls, reached by plain pointers; and what hardware since Volta allows.
#include "common/machine/cpu/allocations.hpp"
#include "common/machine/device.hpp"
#include "common/machine/float16.cuh"
#include "common/machine/ptx.cuh"
#include "common/machine/test/zoo.hpp"

#include <cmath>
#include <vector>

namespace flash {
namespace {

__device__ inline int me() { return static_cast<int>(threadIdx.x); }

struct Numbers {
  float* data;
};
__global__ void add_one(Numbers numbers, int first) {
  numbers.data[first + me()] += 1.0f;  // BUG add one
}
__global__ void wide_copy(const float* from, float* to, int first) {
  *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from + first);  // BUG wide copy
}

// ---- what hardware since Volta allows --------------------------------------------------------------------------------------------

constexpr unsigned FULL = 0xffffffffu;

/// As attention whose last block has fewer rows than threads: barriers after some have left, in a loop.
__global__ void leave_early(float* out, int n) {
  __shared__ float row[64];
  if (me() >= n) return;
  for (int step = 0; step < 3; ++step) {
    row[me()] = static_cast<float>(me() + step);
    __syncthreads();
    out[me()] = row[n - 1 - me()];
    __syncthreads();
  }
  if (__syncthreads_and(1) == 0) out[me()] = 0.0f;
}
/// As a GEMM with warps that load and warps that multiply.
__global__ void two_crews(float* out) {
  __shared__ float row[64];
  if (me() < 32) {
    row[me()] = 1.0f;
    row[me() + 32] = 2.0f;
    __syncthreads();
  } else {
    __syncthreads();
    out[me()] = row[me()];
  }
}
__global__ void torn_warp() {
  if (me() < 16) {
    __syncthreads();  // BUG torn warp
  } else {
    __syncthreads();
  }
}
/// As a scan in a block that ends amid a warp; `from` the lane above reads what is not there.
__global__ void full_mask(float* out, bool from_above) {
  if (me() == 24 || me() == 27) return;
  const float one = 1.0f;
  const float other = from_above ? __shfl_down_sync(FULL, one, 1) : __shfl_up_sync(FULL, one, 1);
  out[me()] = other + static_cast<float>(__all_sync(FULL, 1) + __popc(__match_any_sync(FULL, 3)));
  __syncwarp();
}
__global__ void never_comes() {
  if (me() < 16) __syncwarp();  // BUG never comes
  if (me() >= 16) __syncthreads();
}
__global__ void half_a_matrix(const float* rows) {
  unsigned fragment[4];
  ldmatrix_x4(fragment, rows);  // BUG half a matrix
}

__global__ void vector_add(const float* a, const float* b, float* c, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x) + me();
  if (i < n) c[i] = a[i] + b[i];
}
struct Wide {
  float values[20];
};
__global__ void wide_struct(const Wide* from, Wide* to) { to[me()] = from[me()]; }

// ---- races that are harmless in practice -----------------------------------------------------------------------------------------

__global__ void stores_structures(float4* out, int different) {
  *out = make_float4(threadIdx.x < static_cast<unsigned>(different) ? 1.0f : 2.0f, 0.0f, 0.0f, 0.0f);
}

__global__ void all_store(float* out, int divisor) {
  __shared__ float sum;
  sum = static_cast<float>(me() / divisor);  // BUG all store
  __syncthreads();
  out[me()] = sum;
}
__global__ void reads_too(float* out) {
  if (me() == 0) out[1] = out[0];
  if (me() == 1) out[0] = 3.0f;
}

/// The last block adds up what the others have left. Fences: before the atomic (1), and behind it (2); those of a block alone (4).
__global__ void last_block(float* out, unsigned* arrived, int fences) {
  __shared__ bool last;
  if (me() == 0) {
    out[blockIdx.x] = 1.0f;  // BUG last block, write
    if ((fences & 1) != 0) fences < 4 ? __threadfence() : __threadfence_block();
    last = atomicAdd(arrived, 1u) == gridDim.x - 1;
    if ((fences & 2) != 0) fences < 4 ? __threadfence() : __threadfence_block();
  }
  __syncthreads();
  if (!last || me() != 1) return;
  for (unsigned i = 1; i < gridDim.x; ++i) out[0] += out[i];  // BUG last block, read
  *arrived = 0;
}

/// The writer's warp, or block, has read, rightly, before others do.
__global__ void many_read(float* out, bool of_warp) {
  __shared__ int turn;
  if (me() == 0 && blockIdx.x == 0) {
    turn = 1;
    out[0] = 1.0f;  // BUG many read, write
  }
  of_warp ? __syncwarp() : __syncthreads();
  const float read = blockIdx.x == 0 ? static_cast<float>(turn) : 0.0f;
  out[1 + blockIdx.x * blockDim.x + threadIdx.x] = read + out[0];  // BUG many read, read
}
// ---- what no thread has written --------------------------------------------------------------------------------------------------

__global__ void fill(float* out) { out[me()] = 1.0f; }
__global__ void sum_up(float* out, const float* in, int n) {
  for (int i = 0; i < n; ++i) out[0] += in[i];  // BUG sum up
}
/// g++ notes in a variable of its own that these have been initialised.
__global__ void static_halves(float* out) {
  __shared__ half row[64];
  __shared__ __nv_bfloat162 pair;
  row[me()] = static_cast<float>(me());
  if (me() == 0) pair = __float2bfloat162_rn(2.0f);
  __syncthreads();
  out[me()] = static_cast<float>(row[63 - me()]) + static_cast<float>(pair.y);
}

/// The options of whoever runs a plain file.
struct Plain : Simulated {
  explicit Plain(bool watch = true) : Simulated({.watch = watch, .lenient = true, .host_pointers = false}) { reset_findings(); }
};

struct Memory {
  float* data;
  explicit Memory(std::size_t bytes, int line = 7, MemoryKind kind = MemoryKind::managed)
      : data(static_cast<float*>(allocate_memory(bytes, {kind, "cudaMalloc", {"x.cu", line}}))) {}
  ~Memory() { free_memory(data, {"x.cu", 9}); }
};

}  // namespace

TEST_CASE("plain: bounds of an allocation, wherever its pointer comes from") {
  const Plain plain;
  const Memory a(256);
  CHECK(report(64, 0, add_one, Numbers{a.data}, 0) == "");
  CHECK_REPORT(report(1, 0, add_one, Numbers{a.data}, 80), "out_of_bounds: ",
               "reads 64 bytes past the end of the 256 bytes of cudaMalloc at x.cu:7 (element 80, and the last is 63), at ",
               BUG("add one"));
  CHECK_REPORT(report(65, 0, add_one, Numbers{a.data}, 0), "thread (64,0,0): reads right past the end of the 256 bytes");
  CHECK_REPORT(report(1, 0, add_one, Numbers{a.data}, -2),
               "reads 8 bytes before the 256 bytes of cudaMalloc at x.cu:7 (element -2,");
  float* const gone = Memory(64).data;
  CHECK_REPORT(report(1, 0, add_one, Numbers{gone}, 4),
               "use_after_free: ", "reads 16 bytes into the 64 bytes of cudaMalloc at x.cu:7, freed at x.cu:9, at ",
               BUG("add one"));
  CHECK(!free_memory(gone, {"x.cu", 10}));

  static float host[64];  // no tensor of another test has been there
  CHECK_REPORT(report(1, 0, wide_copy, host, a.data, 0), "foreign_memory: ", "reads the host's variable host",
               BUG("wide copy"));
  static float variable[4];
  register_memory(variable, sizeof variable, {MemoryKind::symbol, "variable"});
  CHECK(report(4, 0, add_one, Numbers{variable}, 0) == "");
  CHECK_REPORT(report(1, 0, add_one, Numbers{variable}, 4),
               "reads right past the end of the 16 bytes of variable (element 4, and the last is 3), at ");
  unregister_memory(variable, {"x.cu", 11});
}

TEST_CASE("plain: bytes and sectors by allocation") {
  constexpr int n = 50'000;
  const Simulated counting({.count = true, .lenient = true, .host_pointers = false});
  constexpr MemoryKind device = MemoryKind::device;
  const Memory a(n * 4, 1, device), b(n * 4, 2, device), c(n * 4, 3, device), wide(2 * 32 * 80, 4, device);
  reset_counters();
  launch("zoo", {dim3(196), dim3(256)}, vector_add, a.data, b.data, c.data, n);
  auto* const from = reinterpret_cast<Wide*>(wide.data);
  CHECK(report(32, 0, wide_struct, from, from + 32) == "");
  for (const TensorTraffic& moved : counters().traffic) {
    CAPTURE(moved.tensor);
    const bool written = moved.tensor == "cudaMalloc at x.cu:3", both = moved.tensor == "cudaMalloc at x.cu:4";
    CHECK(moved.read_bytes == (both ? 2560 : written ? 0 : 200'000));
    CHECK(moved.written_bytes == (both ? 2560 : written ? 200'000 : 0));
    if (!both) CHECK(moved.read_sectors + moved.written_sectors == 6'250);
  }
  CHECK(counters().traffic.size() == 4);
}

TEST_CASE("plain: a wide access at an address that is no multiple of its size") {
  const Plain plain;
  const Memory a(256);
  CHECK(report(1, 0, wide_copy, a.data, a.data, 4) == "");
#ifndef __clang__  // looks at members alone
  CHECK_REPORT(report(1, 0, wide_copy, a.data, a.data, 5), "misaligned: ",
               "float4' (20 bytes into cudaMalloc at x.cu:7) must be a multiple of 16, it is 4 bytes beyond one at ",
               BUG("wide copy"));
#endif
}

TEST_CASE("plain: races that are remarks") {
  const Plain plain;
  const Memory out(256);
  CHECK(report(64, 0, all_store, out.data, 64) == "");
  CHECK(findings().races.empty());
  REQUIRE(findings().remarks.size() == 1);
  CHECK(findings().remarks.front().rule() == RuleId::same_value);
  CHECK(has(sentence(findings().remarks.front()), {BUG("all store"), " writes and ", "the same value"}));
  CHECK(report(64, 0, all_store, out.data, 63) == "");  // the last thread stores another
  REQUIRE(findings().races.size() == 1);
  CHECK(findings().races.front().rule() == RuleId::write_race);
  for (const int different : {0, 1}) {  // a copy of a structure: the compiler tells of the write, of the read, and then copies
    reset_findings();
    CHECK(report(64, 0, stores_structures, reinterpret_cast<float4*>(out.data), different) == "");
    CHECK(findings().races.size() == static_cast<std::size_t>(different));
    CHECK((different == 1 || findings().remarks.size() == 1));  // clang stores what is the same by itself
  }
  reset_findings();
  out.data[0] = 3.0f;
  CHECK(report(2, 0, reads_too, out.data) == "");
  CHECK(findings().races.size() == 1);

  const Memory arrived(4);
  for (const int fences : {3, 1, 2, 7}) {
    reset_findings();
    *arrived.data = 0.0f;
    launch("zoo", {dim3(4), dim3(32)}, last_block, out.data, reinterpret_cast<unsigned*>(arrived.data), fences);
    CAPTURE(fences);
    CHECK(out.data[0] == 4.0f);
    CHECK(findings().races.empty() == (fences == 3 || fences == 1));
    CHECK(findings().remarks.empty() == (fences != 1));
    if (fences == 1) {
      REQUIRE(!findings().remarks.empty());
      CHECK(findings().remarks.front().rule() == RuleId::ticket);
      CHECK(has(sentence(findings().remarks.front()), {BUG("last block, write"), BUG("last block, read"), "__threadfence()"}));
    }
  }
}

TEST_CASE("plain: a write that others have read is held against those who read later") {
  const Plain plain;
  const Memory out(1024 * 4);
  const auto races = [&](unsigned blocks, unsigned threads, bool of_warp) {
    reset_findings();
    launch("zoo", {dim3(blocks), dim3(threads)}, many_read, out.data, of_warp);
    return findings().races;
  };
  CHECK(races(1, 128, false).empty());
  for (const auto& found : {races(1, 128, true), races(4, 32, false)}) {
    REQUIRE(!found.empty());
    CHECK(has(found.back().first_line + found.back().second_line, {BUG("many read, write"), BUG("many read, read")}));
  }
}

TEST_CASE("plain: unwritten is what is known to be so") {
  const Memory in(256, 7, MemoryKind::device), out(256);
  const auto unwritten = [&](const Options& filling, int n, std::size_t by_host = 0, void* memory = nullptr) {
    float* const from = memory == nullptr ? in.data : static_cast<float*>(memory);
    reset_findings();
    filled_by_host(from + 32, by_host);
    {
      const Simulated options(filling);
      CHECK(report(32, 0, fill, from) == "");
    }
    const Simulated watched({.watch = true, .host_pointers = false});
    CHECK(report(1, 0, sum_up, out.data, from, n) == "");
    return findings().unwritten.size();
  };
  const auto cpu = open_cpu();
  const Buffer buffer(*cpu, 256);
  cpu->poison(buffer.data(), 256);
  CHECK(unwritten({.watch = true}, 33, 0, buffer.data()) == 1);
  CHECK(unwritten({.watch = true, .watch_limit = 31}, 33, 0, buffer.data()) == 0);
  CHECK(unwritten({.watch = true}, 32) == 0);
  CHECK(unwritten({.watch = true}, 33) == 1);
  CHECK(unwritten({.watch = true}, 33, 4) == 0);
  CHECK(unwritten({.watch = true}, 34, 4) == 1);
  CHECK(unwritten({.watch = true, .watch_limit = 31}, 34) == 0);
  CHECK(!findings().complete);
  CHECK(unwritten({.watch = false}, 34) == 0);

  const Plain plain;
  CHECK(report(64, 0, static_halves, out.data) == "");
  CHECK(findings().races.empty());
  CHECK(findings().unwritten.empty());
  CHECK(findings().accesses == 3 * 64 + 64 + 1);  // threadIdx is not looked at
}

TEST_CASE("plain: threads that have exited, lanes that are not there, warps that part") {
  for (const Order order : {Order::forward, Order::reverse}) {
    const Simulated lenient({.order = order, .watch = true, .lenient = true, .host_pointers = false});
    reset_findings();
    const Memory out(256);
    CHECK(report(64, 0, leave_early, out.data, 40) == "");
    CHECK(out.data[0] == 41.0f);
    CHECK(report(64, 0, two_crews, out.data) == "");
    CHECK(out.data[63] == 2.0f);
    REQUIRE(!findings().barriers.empty());
    CHECK(findings().barriers.begin()->lines.size() == 2);
    CHECK_REPORT(report(32, 0, torn_warp), "divergent_barrier: ", BUG("torn warp"));
    for (const bool from_above : {false, true}) {
      CHECK(report(28, 0, full_mask, out.data, from_above) == "");
      CHECK(out.data[20] == 28.0f);                    // 26 lanes are there
      CHECK(std::isnan(out.data[25]) == !from_above);  // lane 24 is not
      CHECK(std::isnan(out.data[23]) == from_above);
    }
    CHECK_REPORT(report(32, 0, never_comes), "absent_lane: ", BUG("never comes"));
    CHECK_REPORT(report(16, 0, half_a_matrix, out.data), "absent_lane: ", BUG("half a matrix"));
    CHECK(findings().races.empty());
    CHECK(findings().unwritten.empty());
  }
}

}  // namespace flash
