// A whole lab program to copy: a kernel, its launch, and claims about what it computes.
#include "docs/lab/lab.hpp"

namespace {

using namespace flash;
using namespace flash::lab;

constexpr int ROWS = 50, COLS = 100;          // on purpose no multiples of
constexpr int THREADS_X = 32, THREADS_Y = 8;  // a block

__global__ void twice_kernel(Matrix<const float> in, Matrix<float> out) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  const int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= ROWS || col >= COLS) return;
  out(row, col) = 2.0f * in(row, col);
}

}  // namespace

int main() {
  Claims claims;  // what should hold
  // Matrices in simulated global memory. The host fills and reads them as in(row, col).
  Array in("in", ROWS, COLS), out("out", ROWS, COLS);
  for (int row = 0; row < ROWS; ++row) {
    for (int col = 0; col < COLS; ++col) in(row, col) = static_cast<float>(row - col);
  }

  const dim3 blocks(blocks_for(COLS, THREADS_X), blocks_for(ROWS, THREADS_Y));
  const dim3 threads(THREADS_X, THREADS_Y);
  const std::string race = race_of([&] {  // watches the launch; the first race, as text
    // A name for messages, the shape, the kernel, and its parameters: const_matrix() where it only reads.
    launch("twice", {blocks, threads}, twice_kernel, in.const_matrix(), out.matrix());
  });
  claims.check(race.empty(), ("no race: " + race).c_str());

  for (int row = 0; row < ROWS; ++row) {
    for (int col = 0; col < COLS; ++col) claims.check(out(row, col) == 2.0f * in(row, col), "out is twice in");
  }
  std::printf("%d x %d elements, the last one is %g\n", ROWS, COLS, out(ROWS - 1, COLS - 1));
  return claims.exit_code();
}
// Next: delete the line with `return` in docs/lab/skeleton.cpp, and run this again. Put it back, and begin the first exercise: docs/course/course.py blank 01_softmax mine
