// The elements of a lab's Array are global memory: threads that race there are named, with and without an atomic on one side.
#include "docs/lab/lab.hpp"

namespace {

using namespace flash;
using namespace flash::lab;

__global__ void same_element_kernel(Vector<float> out) { out(0) = static_cast<float>(threadIdx.x); }
__global__ void own_element_kernel(Vector<float> out) { out(static_cast<int>(threadIdx.x)) = 1.0f; }
/// The store of thread 0, which ThreadSanitizer forgets at the thread's own atomic.
__global__ void store_then_atomic_kernel(Vector<float> out) {
  if (threadIdx.x == 0) out(0) = 0.0f;
  atomicAdd(out.address(0), 1.0f);
}
__global__ void ordered_kernel(Vector<float> out) {
  if (threadIdx.x == 0) out(0) = 0.0f;
  __syncthreads();
  atomicAdd(out.address(0), 1.0f);
}

std::string race(void (*kernel)(Vector<float>)) {
  Array out("out", 64, 1);
  return race_of([&] { launch("array", {dim3(1), dim3(64)}, kernel, out.vector()); });
}

}  // namespace

int main() {
  Claims claims;
  const auto expect = [&](void (*kernel)(Vector<float>), const std::string& words) {
    const std::string found = race(kernel);
    const bool is_right = words.empty() ? found.empty() : found.find(words) != std::string::npos;
    claims.check(is_right, ("expected '" + words + "', found '" + found + "'").c_str());
  };
  expect(same_element_kernel, "array.cpp:9 writes and docs/lab/test/array.cpp:9 writes the same global memory");
  expect(own_element_kernel, "");
  expect(store_then_atomic_kernel, "array.cpp:13 writes and docs/lab/test/array.cpp:14 writes the same global memory");
  expect(ordered_kernel, "");
  return claims.exit_code();
}
