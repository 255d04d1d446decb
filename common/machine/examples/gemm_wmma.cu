// GEMM on tensor cores, by WMMA: four warps share a tile of A and compute 16 columns each.
#include <cuda_fp16.h>
#include <mma.h>
#include <cstdio>

using namespace nvcuda;

__global__ void gemm(int n, const half* A, const half* B, float* C) {
  __shared__ half a[16 * 16];
  const int row = blockIdx.y * 16, col = (blockIdx.x * 4 + threadIdx.x / 32) * 16;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a_tile;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b_tile;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  for (int k = 0; k < n; k += 16) {
    for (int i = threadIdx.x; i < 256; i += 128) a[i] = A[(row + i / 16) * n + k + i % 16];
    __syncthreads();  // <- without this: race on a
    wmma::load_matrix_sync(a_tile, a, 16);
    wmma::load_matrix_sync(b_tile, B + k * n + col, n);
    wmma::mma_sync(sum, a_tile, b_tile, sum);
    __syncthreads();  // <- without this: race on a
  }
  wmma::store_matrix_sync(C + row * n + col, sum, n, wmma::mem_row_major);
}

constexpr int n = 64;
__managed__ half A[n * n], B[n * n];  // B puts the columns of A in another order
__managed__ float C[n * n];

int main() {
  for (int i = 0; i < n * n; ++i) {
    A[i] = __int2half_rn(i % 1009);
    B[i] = __int2half_rn(i / n == (i % n * 5 + 3) % n);
  }
  gemm<<<dim3(1, n / 16), 128>>>(n, A, B, C);
  cudaDeviceSynchronize();
  int wrong = 0;
  for (int i = 0; i < n * n; ++i) wrong += C[i] != __half2float(A[i / n * n + (i % n * 5 + 3) % n]);
  std::printf("%d elements are wrong\n", wrong);
  return wrong > 0;
}
