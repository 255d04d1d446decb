// c = a + b on a GPU, from beginning to end: allocate, copy, launch, check, copy back, free.
#include <cstdio>
#include <cstdlib>
#include <vector>

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

__global__ void add(int n, const float* a, const float* b, float* c) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

int main() {
  const int n = 1000, threads = 256, blocks = (n + threads - 1) / threads;
  const std::size_t bytes = n * sizeof(float);
  const std::vector<float> a(n, 1.0f), b(n, 2.0f);
  std::vector<float> c(n);

  float *a_gpu, *b_gpu, *c_gpu;
  for (float** array : {&a_gpu, &b_gpu, &c_gpu}) check(cudaMalloc(array, bytes));
  check(cudaMemcpy(a_gpu, a.data(), bytes, cudaMemcpyHostToDevice));
  check(cudaMemcpy(b_gpu, b.data(), bytes, cudaMemcpyHostToDevice));

  add<<<blocks, threads>>>(n, a_gpu, b_gpu, c_gpu);
  check(cudaGetLastError());  // could the kernel start?

  // This copy waits for the kernel, and reports what went wrong inside.
  check(cudaMemcpy(c.data(), c_gpu, bytes, cudaMemcpyDeviceToHost));
  for (float* array : {a_gpu, b_gpu, c_gpu}) check(cudaFree(array));

  int right = 0;
  for (const float x : c) right += x == 3.0f;
  std::printf("%d of %d sums are right\n", right, n);
  return right == n ? 0 : 1;
}
