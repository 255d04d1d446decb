// A warp transposes a tile through shared memory: it writes rows and reads columns. The row length decides about bank conflicts.
#include "docs/lab/lab.hpp"

namespace {

using namespace flash;
using namespace flash::lab;

constexpr int TILE = 32;

__global__ void transpose_kernel(int stride, Matrix<float> in, Matrix<float> out) {
  float* memory = dynamic_shared<float>(TILE * stride);
  const SharedMatrix<float> tile{memory, TILE, TILE, stride};  // rows lie `stride` words apart
  const int lane = threadIdx.x;
  for (int row = 0; row < TILE; ++row) tile(row, lane) = in(row, lane);
  __syncthreads();  // read after write: a lane reads what all others have written
  for (int col = 0; col < TILE; ++col) out(col, lane) = tile(lane, col);
}

}  // namespace

int main() {
  Claims claims;
  std::printf("32 row writes and 32 column reads of a 32 x 32 tile, one warp\n\n");
  std::printf("row length in words  extra cycles\n");
  struct {
    int stride;
    std::uint64_t conflicts;
  } const cases[] = {{32, 32 * 31}, {33, 0}, {34, 32}, {36, 32 * 3}};
  for (const auto& [stride, expected] : cases) {
    Array in("in", TILE, TILE), out("out", TILE, TILE);
    for (int i = 0; i < TILE * TILE; ++i) in(i / TILE, i % TILE) = static_cast<float>(i);
    start_counting();
    const std::size_t bytes = sizeof(float) * TILE * static_cast<std::size_t>(stride);
    const std::string race = race_of([&, stride = stride] {
      launch("transpose", {dim3(1), dim3(TILE), bytes}, transpose_kernel, stride, in.matrix(), out.matrix());
    });
    claims.check(race.empty(), ("no race: " + race).c_str());
    const std::uint64_t conflicts = counters().bank_conflicts;
    std::printf("%19d  %12llu\n", stride, static_cast<unsigned long long>(conflicts));
    claims.check(conflicts == expected, "extra cycles are 32 times (words in the fullest bank - 1)");
    for (int i = 0; i < TILE * TILE; ++i) claims.check(out(i % TILE, i / TILE) == in(i / TILE, i % TILE), "out is transposed");
  }
  return claims.exit_code();
}
