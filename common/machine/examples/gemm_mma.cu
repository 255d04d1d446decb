// GEMM on tensor cores, by PTX: a warp computes 16 x 8 elements with ldmatrix and mma.sync.
#include <cuda_fp16.h>
#include <cstdio>

__global__ void gemm(int n, const half* A, const half* B, float* C) {
  __shared__ __align__(16) half a[16][16], b[16][8];
  const int lane = threadIdx.x, row = blockIdx.y * 16, col = blockIdx.x * 8;
  float c[4] = {};
  for (int k = 0; k < n; k += 16) {
    for (int i = lane; i < 256; i += 32) a[i / 16][i % 16] = A[(row + i / 16) * n + k + i % 16];
    for (int i = lane; i < 128; i += 32) b[i / 8][i % 8] = B[(k + i / 8) * n + col + i % 8];
    __syncwarp();  // <- without this: race on a
    unsigned x[4], y[2];
    const unsigned a_row = __cvta_generic_to_shared(&a[lane % 16][lane / 16 * 8]);
    const unsigned b_row = __cvta_generic_to_shared(&b[lane % 16][0]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"  // of a
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(a_row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"  // of b
                 : "=r"(y[0]), "=r"(y[1])
                 : "r"(b_row));
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    __syncwarp();  // <- without this: race on a
  }
  C += (row + lane / 4) * n + col + lane % 4 * 2;
  for (int i = 0; i < 4; ++i) C[i / 2 * 8 * n + i % 2] = c[i];
}

constexpr int n = 64;
__managed__ half A[n * n], B[n * n];  // B puts the columns of A in another order
__managed__ float C[n * n];

int main() {
  for (int i = 0; i < n * n; ++i) {
    A[i] = __int2half_rn(i % 1009);
    B[i] = __int2half_rn(i / n == (i % n * 5 + 3) % n);
  }
  gemm<<<dim3(n / 8, n / 16), 32>>>(n, A, B, C);
  cudaDeviceSynchronize();
  int wrong = 0;
  for (int i = 0; i < n * n; ++i) wrong += C[i] != __half2float(A[i / n * n + (i % n * 5 + 3) % n]);
  std::printf("%d elements are wrong\n", wrong);
  return wrong > 0;
}
