// Kernels with one mistake each, for test_run.py: the line that has to be named says by which rule.
#include <cooperative_groups.h>
#include <cuda_fp16.h>

#include <cassert>
#include <cstdio>

namespace cg = cooperative_groups;

struct Matrix {  // the simulator has a type of this name, too
  float* data;
  int cols;
};
__device__ int total;
__constant__ float factors[4];
extern __shared__ float scratch[];

__global__ void launch(Matrix m) {  // and a function of this one; nothing is wrong
  const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  scratch[threadIdx.x] = m.data[threadIdx.x] * factors[threadIdx.x % 4];
  cg::this_thread_block().sync();
  float sum = scratch[31 - threadIdx.x % 32];
  for (int i = 16; i > 0; i /= 2) sum += warp.shfl_xor(sum, i);
  if (threadIdx.x == 0) printf("\"<<<\" %d\n", m.cols);
  atomicAdd(&total, int(sum));
}
template <class T, int N>
__global__ void reverse(T* x) {
  __shared__ T tile[N];
  tile[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = tile[N - 1 - threadIdx.x];  // race
}
__global__ void divergent() {
  if (threadIdx.x % 2 == 0)
    __syncthreads();
  else
    __syncwarp(0xaaaaaaaa);
  __syncthreads();  // divergent_barrier
}
__global__ void past_the_end(Matrix m) {
  m.data[threadIdx.x + 1] = 0;  // out_of_bounds
}
__global__ void unwritten(const float* x, float* y) {
  y[threadIdx.x] = x[threadIdx.x];  // unwritten_read
}
struct Both {
  float a, b;
};
__device__ float sum(Both both) { return both.a + both.b; }
__global__ void structures(float* y) {
  __shared__ Both tile[64];
  tile[63 - threadIdx.x] = Both{1, float(threadIdx.x)};
  y[threadIdx.x] = sum(tile[threadIdx.x]);  // race
}
__global__ void halves(float* y) {
  __shared__ __half2 tile[64];
  tile[63 - threadIdx.x] = __float2half2_rn(float(threadIdx.x));
  y[threadIdx.x] = __low2float(tile[threadIdx.x] * tile[threadIdx.x]);  // race
}
__global__ void count(unsigned* bins) {
  atomicAdd(bins + threadIdx.x % 4, 1u);  // unwritten_read
  atomicExch(bins + 4, 1u);
  atomicMax(bins + 4, threadIdx.x);
}
__global__ void host_pointer(int* x) {
  x[threadIdx.x] = 1;  // foreign_memory
}
__global__ void not_awaited(const float4* x) {
  __shared__ float4 tile[32];
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(tile + threadIdx.x));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(x + threadIdx.x));  // not_awaited
}
__global__ void asserts(int n) {
  assert(threadIdx.x < n);  // trap
}
__global__ void freed(float* x) {
  x[threadIdx.x] = 1;  // use_after_free
}

#define CHECK(call) \
  if (const cudaError_t error = (call)) std::printf("%s\n", cudaGetErrorString(error))
#define RUN(kernel, ...) kernel<<<1, 64>>>(__VA_ARGS__), cudaGetLastError()

int main() {
  float *x, *y;
  CHECK(cudaMalloc(&x, 64 * sizeof(float)));
  CHECK(cudaMalloc((void**)&y, 64 * sizeof(float)));
  const float ones[4] = {1, 1, 1, 1};
  CHECK(cudaMemset(x, 0, 64 * sizeof(float)));
  CHECK(cudaMemcpyToSymbol(factors, ones, sizeof ones));
  const Matrix m{x, 64};
  launch<<<dim3(1),
           64,  // of launches over several lines the first one counts
           64 * sizeof(float)>>>(m);
  reverse<float, 64><<<1, 64>>>(x);
  divergent<<<1, 64>>>();
  cudaGetLastError();
  RUN(past_the_end, m);
  unwritten<<<1, 64>>>(y, x);
  RUN(structures, x);
  RUN(halves, x);
  unsigned* bins;
  CHECK(cudaMalloc(&bins, 32));
  RUN(count, bins);
  int on_host[64];
  RUN(host_pointer, on_host);
  RUN(not_awaited, reinterpret_cast<const float4*>(x));
  RUN(asserts, 40);
  float* gone;
  CHECK(cudaMalloc(&gone, 64 * sizeof(float)));
  CHECK(cudaFree(gone));
  RUN(freed, gone);
  return 0;
}
