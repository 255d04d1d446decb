// Naive attention in one file: O = softmax(Q K^T / sqrt(d)) V by three kernels, with every matrix in HBM.
//
//   S = Q K^T / sqrt(d)              [N, d] x [d, N]     key j of query i is masked if the problem is causal and j > i
//   P_ij = e^S_ij / sum_j e^S_ij     [N, N]              overflows for S > 88: no maximum is subtracted
//   O = P V                          [N, N] x [N, d]
//
// Q, K, V and O are [heads, N, d], fp32, d = 64. S has N * N elements per head, and P overwrites it: that matrix makes the
// kernels slow and the memory run out. Both products load T x T tiles into shared memory, where T threads use each element.
//
//   nvcc -O3 -arch=native standalone.cu && ./a.out [N [heads [runs]]] [causal]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

constexpr int d = 64;
constexpr int T = 32;  // a block computes T x T elements of its matrix, a thread one of them

/// S = Q K^T / sqrt(d)
__global__ void __launch_bounds__(T* T) scores(int N, bool causal, const float* Q, const float* K, float* S) {
  __shared__ float Q_smem[T][T], K_smem[T][T + 1];  // T + 1: a column has its elements in different banks
  const int x = threadIdx.x, y = threadIdx.y, row0 = blockIdx.y * T, col0 = blockIdx.x * T;
  Q += size_t(blockIdx.z) * N * d;
  K += size_t(blockIdx.z) * N * d;
  S += size_t(blockIdx.z) * N * N;

  float sum = 0.0f;
  for (int c = 0; c < d; c += T) {
    Q_smem[y][x] = row0 + y < N ? Q[(row0 + y) * d + c + x] : 0.0f;
    K_smem[y][x] = col0 + y < N ? K[(col0 + y) * d + c + x] : 0.0f;
    __syncthreads();  // read after write: a thread reads a row of each tile, and wrote one element
    for (int k = 0; k < T; ++k) sum += Q_smem[y][k] * K_smem[x][k];
    __syncthreads();  // write after read: the next tiles overwrite these
  }
  const int i = row0 + y, j = col0 + x;
  if (i < N && j < N) S[size_t(i) * N + j] = causal && j > i ? -INFINITY : sum / sqrtf(d);
}

/// P = softmax(S), overwriting S; a thread per row.
__global__ void softmax(int N, unsigned rows, float* S) {
  const size_t row = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float l = 0.0f;
  for (int j = 0; j < N; ++j) l += expf(S[row * N + j]);
  for (int j = 0; j < N; ++j) S[row * N + j] = expf(S[row * N + j]) / l;
}

/// O = P V
__global__ void __launch_bounds__(T* T) weighted_sum(int N, const float* P, const float* V, float* O) {
  __shared__ float P_smem[T][T], V_smem[T][T];
  const int x = threadIdx.x, y = threadIdx.y, row0 = blockIdx.y * T, col0 = blockIdx.x * T;
  P += size_t(blockIdx.z) * N * N;
  V += size_t(blockIdx.z) * N * d;
  O += size_t(blockIdx.z) * N * d;

  float sum = 0.0f;
  for (int j0 = 0; j0 < N; j0 += T) {
    P_smem[y][x] = row0 + y < N && j0 + x < N ? P[size_t(row0 + y) * N + j0 + x] : 0.0f;
    V_smem[y][x] = j0 + y < N ? V[(j0 + y) * d + col0 + x] : 0.0f;
    __syncthreads();  // read after write, as above
    for (int k = 0; k < T; ++k) sum += P_smem[y][k] * V_smem[k][x];
    __syncthreads();  // write after read
  }
  if (row0 + y < N) O[(row0 + y) * d + col0 + x] = sum;
}

static void check(cudaError_t error, int exit_code = 1, int line = __builtin_LINE()) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s:%d: %s\n", __FILE__, line, cudaGetErrorString(error));
  std::exit(exit_code);
}

/// The largest error of O against double precision, over all rows if they are few, else over 1000; NaN if an element is NaN.
static double largest_error(int N, bool causal, const std::vector<float> (&host)[4]) {
  const auto& [Q, K, V, O] = host;
  const size_t rows = O.size() / d;
  double largest = 0.0;
  for (size_t sample = 0; sample < std::min<size_t>(rows, 1000); ++sample) {
    const size_t row = sample * 2654435761u % rows;  // a prime: no row twice
    const size_t first_key = row / N * N, keys = causal ? row % N + 1 : N;
    double l = 0.0, o[d] = {};
    for (size_t j = first_key; j < first_key + keys; ++j) {
      double qk = 0.0;
      for (int c = 0; c < d; ++c) qk += double(Q[row * d + c]) * double(K[j * d + c]);
      const double p = std::exp(qk / std::sqrt(d));
      l += p;
      for (int c = 0; c < d; ++c) o[c] += p * double(V[j * d + c]);
    }
    for (int c = 0; c < d; ++c) {
      const double error = std::abs(double(O[row * d + c]) - o[c] / l);
      if (std::isnan(error)) return error;
      largest = std::max(largest, error);
    }
  }
  return largest;
}

int main(int argc, char** argv) {
  const bool causal = argc > 1 && std::strcmp(argv[argc - 1], "causal") == 0;
  int sizes[] = {1024, 128, 20};  // N, heads, timed runs, which may be 0
  for (int i = 1; i < argc - causal; ++i) {
    char rest;
    const int least = i == 3 ? 0 : 1;
    if (i > 3 || std::sscanf(argv[i], "%d%c", &sizes[i - 1], &rest) != 1 || sizes[i - 1] < least || sizes[i - 1] > 65535) {
      std::fprintf(stderr, "bad argument '%s'; usage: %s [N [heads [runs]]] [causal], each up to 65535\n", argv[i], argv[0]);
      return 2;
    }
  }
  const auto [N, heads, runs] = sizes;
  cudaDeviceProp gpu;
  check(cudaGetDeviceProperties(&gpu, 0), 3);  // 3: there is no GPU

  const size_t size = size_t(heads) * N * d;
  std::vector<float> host[4];  // Q, K, V and O: where no thread writes O, it stays wrong
  float* device[4];
  std::minstd_rand random;
  std::uniform_real_distribution<float> uniform(-2.0f, 2.0f);
  for (int a = 0; a < 4; ++a) {
    for (size_t i = 0; i < size; ++i) host[a].push_back(uniform(random));
    check(cudaMalloc(&device[a], size * sizeof(float)));
    check(cudaMemcpy(device[a], host[a].data(), size * sizeof(float), cudaMemcpyHostToDevice));
  }
  const auto [Q, K, V, O] = device;
  float* S;
  check(cudaMalloc(&S, size / d * N * sizeof(float)));
  const unsigned tiles = (N + T - 1) / T, rows = unsigned(heads) * N;

  cudaEvent_t begin, end;
  for (cudaEvent_t* event : {&begin, &end}) check(cudaEventCreate(event));
  std::vector<float> ms(runs + 1);  // the first run is a warm-up
  for (float& time : ms) {
    check(cudaEventRecord(begin));
    scores<<<dim3(tiles, tiles, heads), dim3(T, T)>>>(N, causal, Q, K, S);
    softmax<<<dim3((rows + 127) / 128), dim3(128)>>>(N, rows, S);
    weighted_sum<<<dim3(d / T, tiles, heads), dim3(T, T)>>>(N, S, V, O);
    check(cudaGetLastError());
    check(cudaEventRecord(end));
    check(cudaEventSynchronize(end));
    check(cudaEventElapsedTime(&time, begin, end));
  }
  check(cudaMemcpy(host[3].data(), O, size * sizeof(float), cudaMemcpyDeviceToHost));

  // Sums of 64 and of N fp32 numbers of about 1, with rounding errors of 6e-8, are accurate to 2e-6.
  const double tolerance = 1e-5;
  const double error = largest_error(N, causal, host);
  std::printf("naive attention on %s: N = %d, %d heads, d = %d%s\n", gpu.name, N, heads, d, causal ? ", causal" : "");
  std::printf("largest error %.2g, tolerance %.2g: %s\n", error, tolerance, error <= tolerance ? "ok" : "WRONG");
  std::sort(ms.begin() + 1, ms.end());
  const double median = ms[(runs + 1) / 2], flop = 4.0 * heads * N * (causal ? (N + 1) / 2.0 : N) * d;  // two products
  if (runs > 0) std::printf("median of %d runs: %.3f ms, %.1f TFLOP/s\n", runs, median, flop / median / 1e9);
  return error <= tolerance ? 0 : 1;
}
