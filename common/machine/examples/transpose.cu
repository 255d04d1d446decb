// Transpose: both copies are coalesced, and the padded tile has no bank conflicts.
#include <cstdio>
#include <vector>

__global__ void transpose(int rows, int cols, const float* in, float* out) {
  __shared__ float tile[32][33];
  const int x = threadIdx.x, y = threadIdx.y, row0 = blockIdx.y * 32, col0 = blockIdx.x * 32;
  for (int k = y; k < 32; k += 8)
    if (row0 + k < rows && col0 + x < cols) tile[k][x] = in[(row0 + k) * cols + col0 + x];
  __syncthreads();  // <- without this: race on tile
  for (int k = y; k < 32; k += 8)
    if (col0 + k < cols && row0 + x < rows)  // <- without this: out_of_bounds on out
      out[(col0 + k) * rows + row0 + x] = tile[x][k];
}

int main() {
  const int rows = 100, cols = 70, bytes = rows * cols * sizeof(float);
  std::vector<float> host(rows * cols), result(rows * cols);
  for (int i = 0; i < rows * cols; ++i) host[i] = i;
  float *in, *out;
  cudaMalloc(&in, bytes);
  cudaMalloc(&out, bytes);
  cudaMemcpy(in, host.data(), bytes, cudaMemcpyHostToDevice);
  transpose<<<dim3((cols + 31) / 32, (rows + 31) / 32), dim3(32, 8)>>>(rows, cols, in, out);
  cudaMemcpy(result.data(), out, bytes, cudaMemcpyDeviceToHost);
  int wrong = 0;
  for (int i = 0; i < rows * cols; ++i) wrong += result[i] != host[i % rows * cols + i / rows];
  std::printf("%d elements are wrong\n", wrong);
  return wrong > 0;
}
