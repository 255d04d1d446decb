// Each thread hands a number to its neighbour through shared memory: without a barrier, with one, and with one in a branch.
#include "docs/lab/lab.hpp"

#include <cmath>

namespace {

using namespace flash;
using namespace flash::lab;

constexpr int THREADS = 128;  // of the one block: four warps

/// A race: s[t + 1] is read although nothing says that its thread has written it.
__global__ void missing_barrier_kernel(Vector<float> out) {
  __shared__ float s[THREADS];
  const int t = threadIdx.x;
  s[t] = static_cast<float>(t);
  out(t) = s[(t + 1) % THREADS];
}

__global__ void barrier_kernel(Vector<float> out) {
  __shared__ float s[THREADS];
  const int t = threadIdx.x;
  s[t] = static_cast<float>(t);
  __syncthreads();  // read after write: s[t + 1] belongs to another thread
  out(t) = s[(t + 1) % THREADS];
}

/// Undefined: a barrier is for all threads of the block, or for none.
__global__ void divergent_barrier_kernel(Vector<float> out) {
  const int t = threadIdx.x;
  if (t < THREADS / 2) {
    __syncthreads();
  }
  out(t) = 0.0f;
}

/// How many threads got their neighbour's number.
int count_right(Array& out) {
  int right = 0;
  for (int t = 0; t < THREADS; ++t) right += out(t, 0) == static_cast<float>((t + 1) % THREADS);
  return right;
}

}  // namespace

int main() {
  Claims claims;
  struct {
    Order order;
    const char* name;
    int lucky;  // threads whose neighbour happens to come first; -1: whatever the seed gives
  } const orders[] = {{Order::forward, "forward", 1}, {Order::reverse, "reverse", THREADS - 1}, {Order::random, "random", -1}};

  std::printf("%d threads, each reads what its neighbour wrote; right results by the order of threads:\n\n", THREADS);
  std::printf("order    without barrier  with barrier\n");
  for (const auto& [order, name, lucky] : orders) {
    set_order(order, 7);
    Array without("out", THREADS, 1), with("out", THREADS, 1);
    launch("missing_barrier", {dim3(1), dim3(THREADS)}, missing_barrier_kernel, without.vector());
    launch("barrier", {dim3(1), dim3(THREADS)}, barrier_kernel, with.vector());
    std::printf("%-7s  %15d  %12d\n", name, count_right(without), count_right(with));
    claims.check(lucky < 0 || count_right(without) == lucky, "a thread is right if its neighbour came first");
    claims.check(count_right(without) < THREADS, "without a barrier some thread reads too early");
    claims.check(count_right(with) == THREADS, "with a barrier all threads read their neighbour's number");
  }

  set_order(Order::forward);
  if (can_watch()) {  // a sanitizer watches by its own means
    const auto watched = [](const char* name, void (*kernel)(Vector<float>)) {
      return race_of([&] {
        Array out("out", THREADS, 1);
        launch(name, {dim3(1), dim3(THREADS)}, kernel, out.vector());
      });
    };
    const std::string race = watched("missing_barrier", missing_barrier_kernel);
    std::printf("\nwithout a barrier, watched:\n%s\n", race.c_str());
    claims.check(race.find("barrier.cpp:17 writes and docs/lab/barrier.cpp:18 reads") != std::string::npos,
                 "the race is found");
    const std::string ordered = watched("barrier", barrier_kernel);
    claims.check(ordered.empty(), "barrier_kernel has no race, but " + ordered);
  }

  Array out("out", THREADS, 1);
  const std::string message = message_of([&] {
    launch("divergent_barrier", {dim3(1), dim3(THREADS)}, divergent_barrier_kernel, out.vector());
  });
  std::printf("\na barrier that half of the threads reach:\n%s\n", message.c_str());
  claims.check(message.find("__syncthreads") != std::string::npos, "the divergent barrier is reported");
  return claims.exit_code();
}
// Next: the race and the divergent barrier above are there on purpose. Delete line 25 of docs/lab/barrier.cpp, a good barrier, and run this again. Put it back, and go on with common/try.sh lab_skeleton
