// Attention without its N x N matrix: a thread per query, tiles of keys and values, softmax online.
#include <cmath>
#include <cstdio>
#include <initializer_list>

constexpr int d = 32, T = 32;

__global__ void attention(int N, const float* Q, const float* K, const float* V, float* O) {
  __shared__ float k[T][d], v[T][d];
  const int t = threadIdx.x, row = blockIdx.x * T + t;
  float q[d], o[d] = {}, m = -INFINITY, l = 0;
  for (int c = 0; c < d; ++c) q[c] = row < N ? Q[row * d + c] / sqrtf(d) : 0;
  for (int j0 = 0; j0 < N; j0 += T) {
    for (int r = 0; r < T && j0 + r < N; ++r) {
      k[r][t] = K[(j0 + r) * d + t];
      v[r][t] = V[(j0 + r) * d + t];
    }
    __syncthreads();  // <- without this: race on k
    for (int j = 0; j < T && j0 + j < N; ++j) {
      float s = 0;
      for (int c = 0; c < d; ++c) s += q[c] * k[j][c];
      const float larger = fmaxf(m, s), scale = expf(m - larger), p = expf(s - larger);
      l = l * scale + p;
      for (int c = 0; c < d; ++c) o[c] = o[c] * scale + p * v[j][c];
      m = larger;
    }
    __syncthreads();  // <- without this: race on k
  }
  if (row >= N) return;  // <- without this: out_of_bounds on O
  for (int c = 0; c < d; ++c) O[row * d + c] = o[c] / l;
}

int main() {
  const int N = 100;
  float *Q, *K, *V, *O;
  for (float** matrix : {&Q, &K, &V, &O}) cudaMallocManaged(matrix, N * d * sizeof(float));
  for (int i = 0; i < N; ++i)
    for (int c = 0; c < d; ++c) {
      K[i * d + c] = c == i % d;  // query i finds the keys j with j % d == i * 5 % d
      Q[i * d + c] = c == i * 5 % d ? 100 : 0;
      V[i * d + c] = i % d + c;
    }
  attention<<<(N + T - 1) / T, T>>>(N, Q, K, V, O);
  cudaDeviceSynchronize();
  int wrong = 0;
  for (int i = 0; i < N * d; ++i) wrong += !(std::fabs(O[i] - (i / d * 5 % d + i % d)) < 1e-3f);
  std::printf("%d elements are wrong\n", wrong);
  return wrong > 0;
}
