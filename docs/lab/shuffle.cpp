// A sum over a warp by five exchanges of registers, step by step. And a shuffle that half of its lanes do not come to.
#include "docs/lab/lab.hpp"

namespace {

using namespace flash;
using namespace flash::lab;

constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr int STEPS = 5;

/// Row r of `history` is what the lanes hold after r steps.
__global__ void butterfly_kernel(Matrix<float> history) {
  const int lane = threadIdx.x;
  float x = static_cast<float>(lane);
  history(0, lane) = x;
  int step = 0;
  for (int distance = WARP / 2; distance > 0; distance /= 2) {
    x += __shfl_xor_sync(ALL_LANES, x, distance);
    history(++step, lane) = x;
  }
}

/// Undefined: the mask promises 32 lanes, and 16 come.
__global__ void absent_lanes_kernel(Vector<float> out) {
  const int lane = threadIdx.x;
  float x = static_cast<float>(lane);
  if (lane < WARP / 2) {
    x += __shfl_xor_sync(ALL_LANES, x, 1);
  }
  out(lane) = x;
}

}  // namespace

int main() {
  Claims claims;
  Array history("history", STEPS + 1, WARP);
  launch("butterfly", {dim3(1), dim3(WARP)}, butterfly_kernel, history.matrix());
  std::printf("lane       0    1    2    3    4    5    6    7  ...\n");
  for (int step = 0; step <= STEPS; ++step) {
    if (step == 0) {
      std::printf("start  ");
    } else {
      std::printf("s = %-2d ", WARP >> step);
    }
    for (int lane = 0; lane < 8; ++lane) std::printf(" %4.0f", history(step, lane));
    std::printf("  ...\n");
  }
  for (int lane = 0; lane < WARP; ++lane) claims.check(history(STEPS, lane) == 31 * 32 / 2, "every lane has 0 + ... + 31");

  Array out("out", WARP, 1);
  const std::string message = message_of([&] {
    launch("absent_lanes", {dim3(1), dim3(WARP)}, absent_lanes_kernel, out.vector());
  });
  std::printf("\na shuffle of 32 lanes that 16 reach:\n%s\n", message.c_str());
  claims.check(message.find("__shfl_xor_sync") != std::string::npos, "the absent lanes are reported");
  return claims.exit_code();
}
