// Kernels that reach for memory that is not theirs: another thread's local variables, the simulator's, the host's.
#include "common/machine/device.hpp"
#include "common/machine/engine/worker.hpp"
#include "common/machine/hopper.cuh"
#include "common/machine/ptx.cuh"
#include "common/machine/test/zoo.hpp"

#include <utility>
#include <vector>

namespace flash {
namespace {

__device__ inline int me() { return static_cast<int>(threadIdx.x); }

// ---- other threads, the simulator, the host ------------------------------------------------------------------------------------------

__global__ void other_stack(Tensor<float> P, int owner, const float*) {
  __shared__ float* shared;
  float mine[4] = {1.0f, 2.0f, 3.0f, 4.0f};
  if (me() == owner) shared = mine;
  __syncthreads();
  if (me() == 1) shared[2] = 0.0f;  // BUG other stack
  __syncthreads();
  P.head(0, 0)(0, me()) = mine[2];
}
__global__ void new_index() {
  threadIdx.x = 7;  // BUG new index
}
__global__ void counts(Tensor<float> P) {
  const auto worker = reinterpret_cast<const volatile int*>(machine::Worker::running());
  P.head(0, 0)(0, 0) = static_cast<float>(*worker);  // BUG counts
}

float expected_output[4] = {1.0f, 2.0f, 3.0f, 4.0f};
constexpr float table[4] = {1.0f, 2.0f, 3.0f, 4.0f};

__global__ void host_variable(Tensor<float> P) {
  P.head(0, 0)(0, me()) = expected_output[me()];  // BUG host variable
}
__global__ void host_variable_write() {
  expected_output[me()] = 0.0f;  // BUG host variable write
}
__global__ void host_variable_right(Tensor<float> P) { P.head(0, 0)(0, me()) = table[me()]; }

struct Hidden {
  const float* values;
};
__global__ void host_heap(Hidden hidden, Tensor<float> P) {
  P.head(0, 0)(0, me()) = hidden.values[me()];  // BUG host heap
}
/// A plain pointer among the parameters says that this memory is accessed without a view.
__global__ void plain_pointer(const float* values, Tensor<float> P) { P.head(0, 0)(0, me()) = values[me()]; }
__global__ void past_the_end(const float* values, Tensor<float> P, int first) {
  P.head(0, 0)(0, me()) = values[first + me()];  // BUG past the end
}

/// Of everything a kernel may access, a bit.
template <int Count>
__global__ void at_home(Tensor<const float> S, Tensor<float> P) {
  __shared__ float tile[Count];
  float* const memory = dynamic_shared<float>(64);
  std::pair<float4, float4> local{};
  std::array<float, 32> squares{};
  for (int i = 0; i < 32; ++i) squares[static_cast<std::size_t>(i)] = static_cast<float>(i * i) * table[i % 4];
  local.first = S.head(0, 0).as<float4>(me(), 0);
  std::swap(local.first, local.second);
  tile[me()] = local.second.x + squares[3];
  memory[me()] = tile[me()];
  __syncthreads();
  auto row = P.head(0, 0);
  row(me(), 0) += memory[3 - me()];
  row(me(), 1) = row(me(), 0);
  if (blockDim.x != 4) __trap();
}

struct Fixture {
  std::unique_ptr<Device> cpu = open_cpu();
  Buffer s{*cpu, 256}, p{*cpu, 256};
  TensorRef S_ref{s.data(), "S", Dtype::fp32, {1, 2, 4, 8}, {64, 32, 8, 1}};
  TensorRef P_ref{p.data(), "P", Dtype::fp32, {1, 2, 4, 8}, {64, 32, 8, 1}};
  Tensor<const float> S = view<const float>(S_ref);
  Tensor<float> P = view<float>(P_ref);
};

}  // namespace

TEST_CASE("zoo: memory of other threads and of the simulator") {
  Fixture f;
  const std::vector<float> values(4, 1.0f);
  for (const float* pointer : {static_cast<const float*>(nullptr), values.data()}) {
    for (const int owner : {0, 2}) {
      CHECK_REPORT(report(4, 0, other_stack, f.P, owner, pointer),
                   "thread (1,0,0): writes a local variable of thread (" + std::to_string(owner) +
                       ",0,0), which no other thread can reach on a GPU at ",
                   BUG("other stack"));
    }
    CHECK(report(4, 0, other_stack, f.P, 1, pointer) == "");
  }
  CHECK_REPORT(report(1, 0, new_index), "foreign_memory: ", BUG("new index"));
  CHECK_REPORT(report(1, 0, counts, f.P), "foreign_memory: ", BUG("counts"));
}

TEST_CASE("zoo: memory of the host") {
  Fixture f;
  CHECK_REPORT(report(4, 0, host_variable, f.P), "foreign_memory: ", "expected_output", BUG("host variable"));
  CHECK_REPORT(report(4, 0, host_variable_write), "foreign_memory: ", BUG("host variable write"));
  CHECK(expected_output[0] == 1.0f);
  CHECK(report(4, 0, host_variable_right, f.P) == "");
  const std::vector<float> values(4, 1.0f);
  CHECK_REPORT(report(4, 0, host_heap, Hidden{values.data()}, f.P), "foreign_memory: ", BUG("host heap"));
  CHECK(report(4, 0, host_heap, Hidden{table}, f.P) == "");
  CHECK(report(4, 0, plain_pointer, values.data(), f.P) == "");
  CHECK(report(4, 0, plain_pointer, static_cast<const float*>(f.s.data()), f.P) == "");
}

TEST_CASE("zoo: past the end of what a plain pointer points to") {
  Fixture f;
  const auto* const values = static_cast<const float*>(f.s.data());
  CHECK(report(4, 0, past_the_end, values, f.P, 60) == "");
  CHECK_REPORT(report(4, 0, past_the_end, values, f.P, 61), "thread (3,0,0): reads right past the end of S (256 bytes) at ",
               BUG("past the end"));
  CHECK_REPORT(report(1, 0, past_the_end, values, f.P, 66), "reads 8 bytes past the end of S (256 bytes) at ",
               BUG("past the end"));
}

TEST_CASE("zoo: what a kernel may access") {
  Fixture f;
  for (const bool watch : {false, true}) {
    set_options({.watch = watch});
    CHECK(report(4, 256, at_home<32>, f.S, f.P) == "");
  }
  set_options({});
}

}  // namespace flash
