// Double buffer by a pipeline: cuda::memcpy_async brings tile k + 1 while tile k is added.
#include <cstdio>
#include <cuda/pipeline>

constexpr int T = 128;

__global__ void sum_of_tiles(int tiles, const int* x, int* sums) {
  __shared__ int buffer[2][T];
  auto pipe = cuda::make_pipeline();
  const int t = threadIdx.x;
  int sum = 0;
  for (int next = 0; next <= tiles; ++next) {  // one tile ahead of the one that is added
    if (next < tiles) cuda::memcpy_async(&buffer[next % 2][t], &x[next * T + t], sizeof(int), pipe);
    pipe.producer_commit();
    if (next == 0) continue;
    cuda::pipeline_consumer_wait_prior<1>(pipe);  // <- without this: in_flight on buffer
    __syncthreads();                              // <- without this: race on buffer
    sum += buffer[(next - 1) % 2][T - 1 - t];
    __syncthreads();  // <- without this: race on buffer
  }
  sums[T - 1 - t] = sum;
}

constexpr int tiles = 5;
__managed__ int x[tiles * T], sums[T];

int main() {
  int expected[T] = {}, wrong = 0;
  for (int i = 0; i < tiles * T; ++i) expected[i % T] += x[i] = i % 9;
  sum_of_tiles<<<1, T>>>(tiles, x, sums);
  cudaDeviceSynchronize();
  for (int t = 0; t < T; ++t) wrong += sums[t] != expected[t];
  std::printf("%d sums are wrong\n", wrong);
  return wrong > 0;
}
