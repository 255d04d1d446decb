// The simulator's counts against numbers worked out by hand.
#include "common/machine/device.hpp"
#include "common/machine/float16.cuh"
#include "common/machine/ptx.cuh"
#include "common/machine/test/zoo.hpp"

#include <array>

namespace flash {
namespace {

/// The counts of one launch, bank conflicts and sectors included.
template <class Launch>
Counters counted(Launch launch_it, Options options = {}) {
  options.count = true;
  set_options(options);
  simt::reset_counters();
  launch_it();
  set_options({});
  return simt::counters();
}

TensorTraffic traffic(const Counters& counters, const std::string& tensor) {
  for (const TensorTraffic& one : counters.traffic) {
    if (one.tensor == tensor) return one;
  }
  return {tensor, 0, 0, 0, 0};
}

__global__ void move(Tensor<const float> A, Tensor<float> B, Tensor<float> sum) {
  const Matrix<const float> a = A.head(0, 0);
  const Matrix<float> b = B.head(0, 0);
  const int i = static_cast<int>(threadIdx.x);
  b(i, 0) = a(i, 0);                                                  // A 4 read, B 4 written
  b.as<float4>(i, 4) = a.as<float4>(i, 4);                            // A 16 read, B 16 written
  b(i, 1) += a(i, 1);                                                 // A 4 read, B 4 read and 4 written
  atomicAdd(sum.head(0, 0).address(0, 0), 1.0f);                      // sum 4 read, 4 written
  atomic_add4(b.address(i, 4), make_float4(1.0f, 2.0f, 3.0f, 4.0f));  // B 16 read, 16 written
  float* const tile = dynamic_shared<float>(8 * 32) + 8 * i;
  cp_async<16>(tile, a.address(i, 0));               // A 16 read
  cp_async_zfill<16>(tile + 4, a.address(i, 4), 8);  // A 8 read
  cp_async_wait_all();
}

/// An element by its view, and twice past it.
__global__ void past_view(Tensor<const float> A, Tensor<float> B) {
  const float* const first = A.data;
  B.data[threadIdx.x] = A.head(0, 0)(0, 0) + first[0];
}

/// One warp writes and reads a tile 32 wide with a given distance between rows, a column each.
__global__ void columns(int stride) {
  const SharedMatrix<float> tile{dynamic_shared<float>(static_cast<std::size_t>(32 * stride)), 32, 32, stride};
  for (int i = 0; i < 4; ++i) {
    tile(static_cast<int>(threadIdx.x), i) = 1.0f;
  }
}
__global__ void columns_read_only(float* out) {
  const SharedMatrix<float> tile{dynamic_shared<float>(32 * 32), 32, 32, 32};
  const SharedMatrix<const float> same = tile;
  out[threadIdx.x] = same(static_cast<int>(threadIdx.x), 0);
}
__global__ void rows() {
  const SharedMatrix<float> tile{dynamic_shared<float>(32 * 32), 32, 32, 32};
  for (int i = 0; i < 4; ++i) tile(i, static_cast<int>(threadIdx.x)) = 1.0f;
}
__global__ void broadcast_read(float* out) {
  const SharedMatrix<const float> tile{dynamic_shared<float>(32 * 32), 32, 32, 32};
  out[threadIdx.x] = tile(3, 7);
}
__global__ void wide(int stride) {
  const SharedMatrix<float> tile{dynamic_shared<float>(static_cast<std::size_t>(32 * stride)), 32, 32, stride};
  const int i = static_cast<int>(threadIdx.x);
  tile.as<float4>(i, 0) = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  tile.as<float2>(i, 0) = {0.0f, 0.0f};
}
/// ldmatrix.x4 on rows of `stride` halves.
__global__ void load_matrices(int stride) {
  unsigned short* const rows = dynamic_shared<unsigned short>(static_cast<std::size_t>(32 * stride));
  unsigned r[4];
  ldmatrix_x4(r, rows + static_cast<int>(threadIdx.x % 32) * stride);
}
/// Lane i copies 16 bytes to row i * row_step / 8, chunk i * chunk_step % 8, of rows of 128 bytes.
__global__ void copy_chunks(const float* from, int row_step, int chunk_step) {
  const SharedMatrix<float> tile{dynamic_shared<float>(32 * 32), 32, 32, 32};
  const int i = static_cast<int>(threadIdx.x % 32);
  cp_async<16>(tile.address(i * row_step / 8, 4 * (i * chunk_step % 8)), from);
  cp_async_wait_all();
}
__global__ void operations() {
  float c[4] = {};
  const unsigned a[4] = {}, b[2] = {}, a8[2] = {}, b8[1] = {};
  mma_m16n8k16_f16(c, a, b, c);
  mma_m16n8k8_bf16(c, a8, b8, c);
  __syncwarp();
  (void)__shfl_xor_sync(0xffffffffu, 1, 1);
  for (int i = 0; i < 5; ++i) __syncthreads();
}

/// Lane t reads A(t * row_step, first_col + t * col_step), four times.
__global__ void walk(Tensor<const float> A, int first_col, int row_step, int col_step, float* out) {
  const Matrix<const float> a = A.head(0, 0);
  const int t = static_cast<int>(threadIdx.x % 32);
  for (int i = 0; i < 4; ++i) {
    out[threadIdx.x] = a(t * row_step, first_col + t * col_step);
    __syncthreads();
  }
}

void run(unsigned blocks, unsigned threads, std::size_t bytes, auto kernel, auto... arguments) {
  launch("counted", {dim3(blocks), dim3(threads), bytes}, kernel, arguments...);
}

}  // namespace

TEST_CASE("counters: bytes of each tensor") {
  alignas(16) std::array<float, 32 * 8> a{}, b{};
  std::array<float, 1> s{};
  const TensorRef A{a.data(), "A", Dtype::fp32, {1, 1, 32, 8}, {256, 256, 8, 1}},
      B{b.data(), "B", Dtype::fp32, {1, 1, 32, 8}, {256, 256, 8, 1}};
  const TensorRef sum{s.data(), "sum", Dtype::fp32, {1, 1, 1, 1}, {1, 1, 1, 1}};
  const Counters c =
      counted([&] { run(3, 32, 1024, move, view<const float>(A), view<float>(B), view<float>(sum)); }, {.os_threads = 1});
  const std::uint64_t threads = 3 * 32;
  CHECK(traffic(c, "A").read_bytes == threads * 48);
  CHECK(traffic(c, "A").written_bytes == 0);
  CHECK(traffic(c, "B").read_bytes == threads * 20);
  CHECK(traffic(c, "B").written_bytes == threads * 40);
  CHECK(traffic(c, "sum").read_bytes == threads * 4);
  CHECK(traffic(c, "sum").written_bytes == threads * 4);
  CHECK(c.atomics == threads * 5);  // one number each
  CHECK(c.launches == 1);
  CHECK(c.blocks == 3);
  CHECK(c.threads == threads);
  CHECK(s[0] == 96.0f);
}

TEST_CASE("counters: bytes past views") {
  if (!can_watch()) return;  // the compiler tells a sanitizer of each access
  const auto cpu = open_cpu();
  const Buffer a(*cpu, 256), b(*cpu, 256);
  const auto tensor = [](const Buffer& buffer, const char* name) {
    return TensorRef{buffer.data(), name, Dtype::fp32, {1, 1, 8, 8}, {64, 64, 8, 1}};
  };
  const Counters c = counted([&] { run(1, 8, 0, past_view, view<const float>(tensor(a, "A")), view<float>(tensor(b, "B"))); });
  CHECK(traffic(c, "A").read_bytes == 8 * 8);
  CHECK(traffic(c, "B").written_bytes == 8 * 4);
}

TEST_CASE("counters: sectors of 32 bytes that warps touch") {
  alignas(256) static std::array<float, 32 * 128> a{};
  const TensorRef A{a.data(), "A", Dtype::fp32, {1, 1, 32, 128}, {4096, 4096, 128, 1}};
  std::array<float, 64> out{};
  for (const Order order : {Order::forward, Order::reverse, Order::random}) {
    const auto read_sectors = [&](int first_col, int row_step, int col_step) {
      const auto launch_it = [&] { run(1, 64, 0, walk, view<const float>(A), first_col, row_step, col_step, out.data()); };
      return traffic(counted(launch_it, {.order = order}), "A").read_sectors;
    };
    const std::uint64_t accesses = 2 * 4;           // two warps, four times each
    CHECK(read_sectors(0, 0, 0) == accesses * 1);   // all lanes one element
    CHECK(read_sectors(0, 0, 1) == accesses * 4);   // along a row: 128 bytes
    CHECK(read_sectors(3, 0, 1) == accesses * 5);   // the same, not aligned
    CHECK(read_sectors(0, 0, 2) == accesses * 8);   // every second element
    CHECK(read_sectors(0, 1, 0) == accesses * 32);  // down a column
  }
}

TEST_CASE("counters: bank conflicts") {
  for (const Order order : {Order::forward, Order::reverse, Order::random}) {
    const auto conflicts = [&](std::size_t bytes, auto kernel, auto... arguments) {
      return counted([&] { run(1, 32, bytes, kernel, arguments...); }, {.order = order}).bank_conflicts;
    };
    std::array<float, 32> out{};
    CHECK(conflicts(4096, columns, 32) == 4 * 31);  // a column of 32 floats is one bank
    CHECK(conflicts(4096, columns_read_only, out.data()) == 31);
    CHECK(conflicts(4224, columns, 33) == 0);      // padding by one column
    CHECK(conflicts(4352, columns, 34) == 4 * 1);  // by two: every second bank, two words each
    CHECK(conflicts(4096, rows) == 0);
    CHECK(conflicts(4096, broadcast_read, out.data()) == 0);
    // float4: quarter warps, 8 words in each of 4 banks; float2: half warps, 16 words in each of 2 banks.
    CHECK(conflicts(4096, wide, 32) == 4 * 7 + 2 * 15);
    // Rows 36 words apart: a quarter warp starts in banks 0, 4, 8, ..., 28; a half warp meets each of those banks twice.
    CHECK(conflicts(4608, wide, 36) == 0 + 2 * 1);
    CHECK(conflicts(32 * 64 * 2, load_matrices, 64) == 4 * 7);  // rows of 128 bytes: 8 rows of a matrix in the same 4 banks
    CHECK(conflicts(32 * 72 * 2, load_matrices, 72) == 0);      // rows of 144 bytes
    CHECK(conflicts(32 * 8 * 2, load_matrices, 8) == 0);        // rows without a gap
    alignas(16) const std::array<float, 4> from{};
    CHECK(conflicts(4096, copy_chunks, from.data(), 1, 1) == 0);      // a quarter warp copies a row
    CHECK(conflicts(4096, copy_chunks, from.data(), 8, 0) == 4 * 7);  // a column of chunks
    CHECK(conflicts(4096, copy_chunks, from.data(), 8, 1) == 0);      // a diagonal
  }
}

TEST_CASE("counters: operations") {
  const Counters c = counted([] { run(2, 96, 0, operations); });
  CHECK(c.tensor_core_products == 2 * 3 * (16 * 8 * 16 + 16 * 8 * 8));
  CHECK(c.warp_operations == 2 * 3 * 4);  // mma, mma, __syncwarp, shuffle
  CHECK(c.barriers == 2 * 5);
  CHECK(c.threads == 2 * 96);
  CHECK(c.bank_conflicts == 0);
}

}  // namespace flash
