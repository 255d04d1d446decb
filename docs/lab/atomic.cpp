// Many threads add to one number: as a plain sum, which is a race, and by atomicAdd, whose order nobody promises.
#include "docs/lab/lab.hpp"

namespace {

using namespace flash;
using namespace flash::lab;

constexpr int THREADS = 256;  // of the one block

/// A race: between a thread's read and its write others may come, and their additions are lost.
__global__ void plain_kernel(Vector<float> out) {
  __shared__ float count;
  if (threadIdx.x == 0) count = 0.0f;
  __syncthreads();  // read after write: all threads read the 0
  count += 1.0f;
  __syncthreads();  // read after write: thread 0 reads what all have added
  if (threadIdx.x == 0) out(0) = count;
}

__global__ void atomic_kernel(Vector<float> out) {
  __shared__ float count;
  if (threadIdx.x == 0) count = 0.0f;
  __syncthreads();  // read after write, as above
  atomicAdd(&count, 1.0f);
  __syncthreads();  // read after write, as above
  if (threadIdx.x == 0) out(0) = count;
}

/// 1 + 1/2 + 1/3 + ... in global memory, in whatever order the threads come.
__global__ void sum_kernel(Vector<float> sum) { atomicAdd(sum.address(0), 1.0f / static_cast<float>(threadIdx.x + 1)); }

float result_of(void (*kernel)(Vector<float>)) {
  Array number("number", 1, 1);
  number(0, 0) = 0.0f;
  launch("add", {dim3(1), dim3(THREADS)}, kernel, number.vector());
  return number(0, 0);
}

}  // namespace

int main() {
  Claims claims;
  const float plain = result_of(plain_kernel), atomic = result_of(atomic_kernel);
  std::printf("%d threads add 1 to one number: %.0f plainly, %.0f by atomicAdd\n", THREADS, plain, atomic);
  claims.check(atomic == THREADS, "no atomic addition is lost");

  if (can_watch()) {  // a sanitizer watches by its own means
    const std::string race = race_of([] { result_of(plain_kernel); });
    std::printf("\nthe plain sum, watched:\n%s\n", race.c_str());
    claims.check(race.find("atomic.cpp:16 writes and docs/lab/atomic.cpp:16 reads") != std::string::npos,
                 "the race of the plain sum is found");
    const std::string ordered = race_of([] { result_of(atomic_kernel); });
    claims.check(ordered.empty(), ("atomic additions do not race: " + ordered).c_str());
  }

  std::printf("\n1 + 1/2 + ... + 1/%d by atomicAdd, by the order of threads:\n\n", THREADS);
  float forward = 0.0f, reverse = 0.0f;
  set_order(Order::forward);
  std::printf("forward  %.7f\n", forward = result_of(sum_kernel));
  set_order(Order::reverse);
  std::printf("reverse  %.7f\n", reverse = result_of(sum_kernel));
  set_order(Order::random, 7);
  std::printf("random   %.7f\n", result_of(sum_kernel));
  claims.check(forward != reverse, "another order, other last bits");
  return claims.exit_code();
}
