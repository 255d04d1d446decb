// Kernels that reach for memory of the host, by plain pointers and by others.
#include "common/machine/device.hpp"
#include "common/machine/ptx.cuh"
#include "common/machine/test/zoo.hpp"

#include <utility>
#include <vector>

namespace flash {
namespace {

__device__ inline int me() { return static_cast<int>(threadIdx.x); }

[[gnu::used]] float expected_output[4] = {1.0f, 2.0f, 3.0f, 4.0f};  // not to be folded like a constant
constexpr float table[4] = {1.0f, 2.0f, 3.0f, 4.0f};

__global__ void host_variable(Tensor<float> P) {
  P.head(0, 0)(0, me()) = expected_output[me()];  // BUG host variable
}
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

TEST_CASE("zoo: memory of the host") {
  Fixture f;
  CHECK_REPORT(report(4, 0, host_variable, f.P), "foreign_memory: ", "expected_output", BUG("host variable"));
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
