// Bugs of memory: bounds, alignment, what was never written, copies that were never waited for.
#include "common/machine/float16.cuh"
#include "common/machine/ptx.cuh"
#include "common/machine/test/zoo.hpp"

#include <array>
#include <cmath>

namespace flash {
namespace {

// ---- bounds --------------------------------------------------------------------------------------------------------------------

/// [1, 2, 4, 8] in global memory.
struct Fixture {
  alignas(16) std::array<float, 64> values{};
  TensorRef ref{values.data(), "K", Dtype::fp32, {1, 2, 4, 8}, {64, 32, 8, 1}};
};

__global__ void past_the_last_row(Tensor<float> K) {
  K.head(0, 1)(static_cast<int>(threadIdx.x), 2) = 1.0f;  // BUG row
}
__global__ void past_the_last_row_right(Tensor<float> K) {
  if (static_cast<int>(threadIdx.x) < K.rows) K.head(0, 1)(static_cast<int>(threadIdx.x), 2) = 1.0f;
}

__global__ void wide_read_past_the_row(Tensor<const float> K, float* sum) {
  *sum = K.head(0, 0).as<float4>(1, 8).x;  // BUG wide
}
__global__ void wide_read_past_the_row_right(Tensor<const float> K, float* sum) { *sum = K.head(0, 0).as<float4>(1, 4).x; }

__global__ void vector_index(Tensor<float> K) {
  K.head_vector(0, 0)(-1) = 1.0f;  // BUG vector
}
__global__ void no_such_head(Tensor<float> K) {
  K.head(0, 2)(0, 0) = 1.0f;  // BUG head
}

__global__ void shared_bounds() {
  const SharedMatrix<float> tile{dynamic_shared<float>(64), 8, 8, 8};
  tile(static_cast<int>(threadIdx.x), 8) = 1.0f;  // BUG shared column
}
__global__ void shared_bounds_right() {
  const SharedMatrix<float> tile{dynamic_shared<float>(64), 8, 8, 8};
  tile(static_cast<int>(threadIdx.x), 7) = 1.0f;
}

__global__ void shared_read_only(float* sum, int col) {
  const SharedMatrix<float> tile{dynamic_shared<float>(64), 8, 8, 8};
  tile(7, 7) = 3.0f;
  const SharedMatrix<const float> same = tile;
  static_assert(!std::is_convertible_v<SharedMatrix<const float>, SharedMatrix<float>>, "reading does not lead to writing");
  *sum = same(7, col);  // BUG read-only column
}

__global__ void shared_beyond_launch() {
  float* const memory = dynamic_shared<float>(64);
  const SharedMatrix<float> tile{memory + 32, 8, 8, 8};  // ends 32 floats too far
  tile(7, 0) = 1.0f;                                     // BUG beyond dynamic
}
__global__ void more_than_the_launch_gave() {
  dynamic_shared<float>(65)[0] = 1.0f;  // BUG dynamic_shared
}
__global__ void plain_pointer_beyond(int index) {
  float* const memory = dynamic_shared<float>(64);
  memory[index] = 1.0f;  // BUG plain pointer
}

// ---- alignment -----------------------------------------------------------------------------------------------------------------

__global__ void misaligned_float4(Tensor<const float> K, float* sum) {
  *sum = K.head(0, 0).as<float4>(0, 1).x;  // BUG float4
}
__global__ void misaligned_ldmatrix(int skew) {
  __half* const rows = reinterpret_cast<__half*>(dynamic_shared<float>(64));
  unsigned r[1];
  ldmatrix_x1(r, rows + static_cast<int>(threadIdx.x % 8) * 8 + skew);  // BUG ldmatrix
}
__global__ void misaligned_cp_async(Tensor<const float> K, int col) {
  cp_async<16>(dynamic_shared<float>(64), K.head(0, 0).address(0, col));  // BUG cp.async
  cp_async_wait_all();
}
__global__ void misaligned_atomic_add4(Tensor<float> K, int col) {
  atomic_add4(K.head(0, 0).address(0, col), make_float4(1.0f, 2.0f, 3.0f, 4.0f));  // BUG atomic_add4
}

// ---- what was never written or has not arrived -----------------------------------------------------------------------------------

__global__ void uninitialised_dynamic(float* out, int first) {
  float* const sums = dynamic_shared<float>(32);
  if (static_cast<int>(threadIdx.x) >= first) sums[threadIdx.x] = 0.0f;
  sums[threadIdx.x] += 1.0f;
  out[threadIdx.x] = sums[threadIdx.x];
}
__global__ void uninitialised_static(float* out, int first) {
  __shared__ float sums[32];
  if (static_cast<int>(threadIdx.x) >= first) sums[threadIdx.x] = 0.0f;
  sums[threadIdx.x] += 1.0f;
  out[threadIdx.x] = sums[threadIdx.x];
}

__global__ void copy_never_waited_for(Tensor<const float> K) {
  cp_async<16>(dynamic_shared<float>(64), K.head(0, 0).address(0, 0));  // BUG never waited
  cp_async_commit();
}
__global__ void copy_past_the_row(Tensor<const float> K, int bytes) {
  cp_async_zfill<16>(dynamic_shared<float>(64), K.head(0, 0).address(0, 4), bytes);  // BUG copy past the row
  cp_async_wait_all();
}

}  // namespace

TEST_CASE("zoo: out of bounds in global memory") {
  Fixture f;
  const auto K = view<float>(f.ref);
  CHECK_REPORT(
      report(32, 0, past_the_last_row, K),
      "out_of_bounds: kernel zoo, block (0,0,0), thread (4,0,0): K[b=0, h=1](4, 2) is outside: it has 4 rows and 8 columns at ",
      BUG("row"));
  CHECK(report(32, 0, past_the_last_row_right, K) == "");
  float sum = 0;
  const auto K_in = view<const float>(f.ref);
  CHECK_REPORT(report(1, 0, wide_read_past_the_row, K_in, &sum), "out_of_bounds: ", BUG("wide"));
  CHECK(report(1, 0, wide_read_past_the_row_right, K_in, &sum) == "");
  CHECK_REPORT(report(1, 0, vector_index, K), "out_of_bounds: ", BUG("vector"));
  CHECK_REPORT(report(1, 0, no_such_head, K), "out_of_bounds: ", BUG("head"));
}

TEST_CASE("zoo: out of bounds in shared memory") {
  CHECK_REPORT(report(4, 256, shared_bounds), "out_of_bounds: ", BUG("shared column"));
  CHECK(report(4, 256, shared_bounds_right) == "");
  float sum = 0;
  CHECK_REPORT(report(1, 256, shared_read_only, &sum, 8), "out_of_bounds: ", BUG("read-only column"));
  CHECK(report(1, 256, shared_read_only, &sum, 7) == "");
  CHECK(sum == 3.0f);
  CHECK_REPORT(report(1, 256, shared_beyond_launch), "out_of_bounds: ", BUG("beyond dynamic"));
  CHECK_REPORT(report(1, 256, more_than_the_launch_gave), "out_of_bounds: ", BUG("dynamic_shared"));
#ifndef FLASH_ASAN  // which reports it at the line itself, and ends the program
  CHECK_REPORT(report(1, 256, plain_pointer_beyond, 64), "out_of_bounds: ", BUG("plain pointer"));
  CHECK_REPORT(report(1, 256, plain_pointer_beyond, -3), "out_of_bounds: ", BUG("plain pointer"));
#endif
  CHECK(report(1, 256, plain_pointer_beyond, 63) == "");
}

TEST_CASE("zoo: misaligned accesses") {
  Fixture f;
  const auto K = view<const float>(f.ref);
  float sum = 0;
  CHECK_REPORT(report(1, 0, misaligned_float4, K, &sum),
               "misaligned access: the address of K must be a multiple of 16, it is 4 bytes beyond one at ", BUG("float4"));
  CHECK_REPORT(report(32, 256, misaligned_ldmatrix, 4), "misaligned: ", BUG("ldmatrix"));
  CHECK(report(32, 256, misaligned_ldmatrix, 8) == "");
  CHECK_REPORT(report(1, 256, misaligned_cp_async, K, 2), "misaligned: ", BUG("cp.async"));
  CHECK(report(1, 256, misaligned_cp_async, K, 4) == "");
  CHECK_REPORT(report(1, 0, misaligned_atomic_add4, view<float>(f.ref), 2), "misaligned: ", BUG("atomic_add4"));
  CHECK(report(1, 0, misaligned_atomic_add4, view<float>(f.ref), 4) == "");
  CHECK(f.values[7] == 4.0f);
  f.ref.shape[3] = 6;
  CHECK_REPORT(report(1, 0, misaligned_atomic_add4, view<float>(f.ref), 4), "out_of_bounds: ", BUG("atomic_add4"));
}

TEST_CASE("zoo: uninitialised shared memory") {
  for (const auto kernel : {uninitialised_dynamic, uninitialised_static}) {
    std::vector<float> out(32);
    for (int run = 0; run < 2; ++run) {  // the second block must not find what the first has left
      CHECK(report(32, 128, kernel, out.data(), 0) == "");
      CHECK(out[0] == 1.0f);
      CHECK(report(32, 128, kernel, out.data(), 1) == "");
      CHECK(std::isnan(out[0]));
      CHECK(out[1] == 1.0f);
    }
  }
}

TEST_CASE("zoo: asynchronous copies") {
  Fixture f;
  const auto K = view<const float>(f.ref);
  CHECK_REPORT(report(1, 256, copy_never_waited_for, K), "not_awaited: ", BUG("never waited"));
  CHECK(report(1, 256, copy_past_the_row, K, 16) == "");
  f.ref.shape[3] = 6;
  CHECK_REPORT(report(1, 256, copy_past_the_row, view<const float>(f.ref), 16), "out_of_bounds: ", BUG("copy past the row"));
  CHECK(report(1, 256, copy_past_the_row, view<const float>(f.ref), 8) == "");
}

}  // namespace flash
