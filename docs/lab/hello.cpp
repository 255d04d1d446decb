// Who am I? Each thread finds its element from its place in the grid. And what happens where the grid hangs over the array.
#include "docs/lab/lab.hpp"

namespace {

using namespace flash;
using namespace flash::lab;

constexpr int N = 200;       // elements, on purpose no multiple of THREADS
constexpr int THREADS = 64;  // of a block

/// Row i of `who` becomes block, thread, warp and lane of the thread that owns element i.
__global__ void hello_kernel(int n, Matrix<float> who) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;  // the grid is made of whole blocks and reaches beyond n
  who(i, 0) = static_cast<float>(blockIdx.x);
  who(i, 1) = static_cast<float>(threadIdx.x);
  who(i, 2) = static_cast<float>(threadIdx.x / warpSize);
  who(i, 3) = static_cast<float>(threadIdx.x % warpSize);
}

__global__ void unguarded_kernel(Vector<float> out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out(i) = 1.0f;
}

}  // namespace

int main() {
  Claims claims;
  const unsigned blocks = blocks_for(N, THREADS);
  std::printf("%d elements, blocks of %d threads: %u blocks, %u threads, of which %u have nothing to do\n\n", N, THREADS,
              blocks, blocks * THREADS, blocks * THREADS - N);

  Array who("who", N, 4);
  launch("hello", {dim3(blocks), dim3(THREADS)}, hello_kernel, N, who.matrix());
  std::printf("element  block  thread  warp  lane\n");
  for (const int i : {0, 1, 31, 32, 63, 64, 199}) {
    std::printf("%7d  %5.0f  %6.0f  %4.0f  %4.0f\n", i, who(i, 0), who(i, 1), who(i, 2), who(i, 3));
  }
  for (int i = 0; i < N; ++i) {
    claims.check(who(i, 0) * THREADS + who(i, 1) == static_cast<float>(i), "block * THREADS + thread is the element");
    claims.check(who(i, 2) * 32 + who(i, 3) == who(i, 1), "warp * 32 + lane is the thread");
  }

  Array out("out", N, 1);
  const std::string message = message_of([&] {
    launch("unguarded", {dim3(blocks), dim3(THREADS)}, unguarded_kernel, out.vector());
  });
  std::printf("\nwithout the guard:\n%s\n", message.c_str());
  claims.check(message.find("200") != std::string::npos, "the access to element 200 is refused");
  return claims.exit_code();
}
