// 2D convolution: the filter in constant memory, the image's tile with its halo in shared memory.
#include <cstdio>

constexpr int T = 16, R = 2, F = 2 * R + 1;
__constant__ float filter[F][F];

__global__ void convolve(int width, int height, const float* in, float* out) {
  __shared__ float tile[T + 2 * R][T + 2 * R];
  const int x0 = blockIdx.x * T, y0 = blockIdx.y * T;
  for (int y = threadIdx.y; y < T + 2 * R; y += T)
    for (int x = threadIdx.x; x < T + 2 * R; x += T) {
      const int i = y0 + y - R, j = x0 + x - R;
      tile[y][x] = i >= 0 && i < height && j >= 0 && j < width ? in[i * width + j] : 0;
    }
  __syncthreads();  // <- without this: race on tile
  const int x = x0 + threadIdx.x, y = y0 + threadIdx.y;
  if (x >= width || y >= height) return;  // <- without this: out_of_bounds on out
  float sum = 0;
  for (int i = 0; i < F; ++i)
    for (int j = 0; j < F; ++j) sum += filter[i][j] * tile[threadIdx.y + i][threadIdx.x + j];
  out[y * width + x] = sum;
}

int main() {
  const int width = 50, height = 40;
  const float shift[F][F] = {{0, 0, 0, 0, 1}};  // up by 2, and right by 2
  float *in, *out;
  cudaMallocManaged(&in, width * height * sizeof(float));
  cudaMallocManaged(&out, width * height * sizeof(float));
  for (int i = 0; i < width * height; ++i) in[i] = i;
  cudaMemcpyToSymbol(filter, shift, sizeof shift);
  convolve<<<dim3((width + T - 1) / T, (height + T - 1) / T), dim3(T, T)>>>(width, height, in, out);
  cudaDeviceSynchronize();
  int wrong = 0;
  for (int i = 0; i < width * height; ++i) {
    const bool inside = i / width >= R && i % width + R < width;
    wrong += out[i] != (inside ? i - R * width + R : 0);
  }
  std::printf("%d pixels are wrong\n", wrong);
  return wrong > 0;
}
