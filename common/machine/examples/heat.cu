// 2D stencil: heat spreads in global memory, and the whole grid waits after each step.
#include <cooperative_groups.h>
#include <cstdio>

__global__ void heat(int n, int steps, float* from, float* to) {
  const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
  for (int step = 0; step < steps; ++step) {
    for (int i = n + grid.thread_rank(); i < n * n - n; i += grid.size())
      if (i % n > 0 && i % n < n - 1) to[i] = 0.25f * (from[i - 1] + from[i + 1] + from[i - n] + from[i + n]);
    grid.sync();  // <- without this: race on to
    float* const swapped = from;
    from = to;
    to = swapped;
  }
}

int main() {
  int n = 40, steps = 6, wrong = 0;
  float *u, *v;
  cudaMallocManaged(&u, n * n * sizeof(float));
  cudaMallocManaged(&v, n * n * sizeof(float));
  for (int i = 0; i < n * n; ++i) u[i] = v[i] = (i % n) * (i % n);
  void* arguments[] = {&n, &steps, &u, &v};
  cudaLaunchCooperativeKernel(reinterpret_cast<void*>(heat), dim3(4), dim3(64), arguments);
  cudaDeviceSynchronize();
  for (int y = steps; y < n - steps; ++y)  // far from the border x^2 grows by 1/2 per step
    for (int x = steps; x < n - steps; ++x) wrong += u[y * n + x] != x * x + 0.5f * steps;
  std::printf("%d points are wrong\n", wrong);
  return wrong > 0;
}
