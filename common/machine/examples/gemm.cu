// GEMM by steps: an element per thread, tiles in shared memory, then 4 x 4 elements per thread.
#include <cstdio>
#include <initializer_list>

constexpr int T = 16;

__global__ void naive(int n, const float* A, const float* B, float* C) {
  const int row = blockIdx.y * T + threadIdx.y, col = blockIdx.x * T + threadIdx.x;
  if (row >= n || col >= n) return;  // <- without this: out_of_bounds on A
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += A[row * n + k] * B[k * n + col];
  C[row * n + col] = sum;
}

template <int R>
__global__ void tiled(int n, const float* A, const float* B, float* C) {
  __shared__ float a[T * R][T], b[T][T * R];
  const int x = threadIdx.x, y = threadIdx.y, row0 = blockIdx.y * T * R, col0 = blockIdx.x * T * R;
  float sum[R][R] = {};
  for (int k0 = 0; k0 < n; k0 += T) {
    for (int r = 0; r < T * R; r += T) {
      const int i = row0 + r + y, j = col0 + r + x;
      a[r + y][x] = i < n && k0 + x < n ? A[i * n + k0 + x] : 0;
      b[y][r + x] = k0 + y < n && j < n ? B[(k0 + y) * n + j] : 0;
    }
    __syncthreads();  // <- without this: race on a
    for (int k = 0; k < T; ++k)
      for (int i = 0; i < R; ++i)
        for (int j = 0; j < R; ++j) sum[i][j] += a[i * T + y][k] * b[k][j * T + x];
    __syncthreads();  // <- without this: race on a
  }
  for (int k = 0; k < R * R; ++k) {
    const int i = row0 + k / R * T + y, j = col0 + k % R * T + x;
    if (i < n && j < n) C[i * n + j] = sum[k / R][k % R];
  }
}

int main() {
  const int n = 100, bytes = n * n * sizeof(float), blocks = (n + T - 1) / T;
  float *A, *B, *C[3];  // B puts the columns of A in another order
  for (float** matrix : {&A, &B, &C[0], &C[1], &C[2]}) cudaMallocManaged(matrix, bytes);
  for (int i = 0; i < n * n; ++i) A[i] = i, B[i] = i / n == (i % n * 3 + 1) % n;
  naive<<<dim3(blocks, blocks), dim3(T, T)>>>(n, A, B, C[0]);
  tiled<1><<<dim3(blocks, blocks), dim3(T, T)>>>(n, A, B, C[1]);
  tiled<4><<<dim3((blocks + 3) / 4, (blocks + 3) / 4), dim3(T, T)>>>(n, A, B, C[2]);
  cudaDeviceSynchronize();
  int wrong = 0;
  for (int i = 0; i < n * n; ++i)
    for (const float* each : C) wrong += each[i] != A[i / n * n + (i % n * 3 + 1) % n];
  std::printf("%d elements are wrong\n", wrong);
  return wrong > 0;
}
