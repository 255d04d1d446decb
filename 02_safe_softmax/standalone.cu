// Safe softmax in one file: as 01, with the maximum of its row subtracted from each score.
//
//   S = Q K^T / sqrt(d)               [N, d] x [d, N]    causal: S_ij = -inf if j > i
//   m_i = max_j S_ij                  [N]
//   l_i = sum_j e^(S_ij - m_i)        [N]                no exponent is above 0
//   P_ij = e^(S_ij - m_i) / l_i       [N, N]             the same P, as e^-m cancels
//   O = P V                           [N, N] x [N, d]
//
// Q, K, V and O are [heads, N, d] in fp32, row after row, with d = 64. They are in HBM, the memory
// of the GPU, and so is S, [heads, N, N], which P overwrites. The softmax reads S three times: for
// m, for l and for P.
//
//   nvcc -O3 -arch=native standalone.cu && ./a.out [N [heads [runs]]] [causal]
//   ../common/run standalone.cu -- 100 2 0       and again with `causal` at its end
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

constexpr int d = 64;
constexpr int TILE = 32;  // a block computes TILE x TILE elements of S or O, a thread one of them
constexpr int ROWS_PER_BLOCK = 4;  // of P, a warp for each

/// S = Q K^T / sqrt(d), tile by tile: TILE threads use each number that is loaded.
__global__ void __launch_bounds__(1024)
    scores(int N, bool causal, const float* Q, const float* K, float* S) {
  __shared__ float Q_smem[TILE][TILE], K_smem[TILE][TILE + 1];  // + 1: a column is in 32 banks
  const int x = threadIdx.x, y = threadIdx.y, row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;
  Q += size_t(blockIdx.z) * N * d;  // of this head
  K += size_t(blockIdx.z) * N * d;
  S += size_t(blockIdx.z) * N * N;

  float sum = 0.0f;
  for (int c = 0; c < d; c += TILE) {
    Q_smem[y][x] = row0 + y < N ? Q[(row0 + y) * d + c + x] : 0.0f;
    K_smem[y][x] = col0 + y < N ? K[(col0 + y) * d + c + x] : 0.0f;
    // Read after write: a thread reads a row of each tile, of which it has written one element.
    __syncthreads();
    for (int k = 0; k < TILE; ++k) sum += Q_smem[y][k] * K_smem[x][k];
    // Write after read: the next tiles overwrite what slower threads still read.
    __syncthreads();
  }
  const int i = row0 + y, j = col0 + x;
  if (i < N && j < N) S[size_t(i) * N + j] = causal && j > i ? -INFINITY : sum / sqrtf(d);
}

/// P = softmax(S), in place. A warp per row: lane x has the columns x, x + 32, x + 64, ...
__global__ void softmax(int N, unsigned rows, float* S) {
  const size_t row = size_t(blockIdx.x) * ROWS_PER_BLOCK + threadIdx.y;
  if (row >= rows) return;
  S += row * N;

  float m = -INFINITY, l = 0.0f;
  for (int j = threadIdx.x; j < N; j += 32) m = fmaxf(m, S[j]);
  // The maximum over the lanes, before any of them needs it.
  for (int other = 1; other < 32; other *= 2) m = fmaxf(m, __shfl_xor_sync(0xFFFFFFFFu, m, other));
  for (int j = threadIdx.x; j < N; j += 32) l += expf(S[j] - m);
  // The sum over the lanes: lane x adds that of lane x ^ 1, then of x ^ 2, x ^ 4, x ^ 8, x ^ 16.
  for (int other = 1; other < 32; other *= 2) l += __shfl_xor_sync(0xFFFFFFFFu, l, other);
  for (int j = threadIdx.x; j < N; j += 32) S[j] = expf(S[j] - m) / l;
}

/// O = P V, tile by tile, as above.
__global__ void __launch_bounds__(1024) output(int N, const float* P, const float* V, float* O) {
  __shared__ float P_smem[TILE][TILE], V_smem[TILE][TILE];
  const int x = threadIdx.x, y = threadIdx.y, row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;
  P += size_t(blockIdx.z) * N * N;
  V += size_t(blockIdx.z) * N * d;
  O += size_t(blockIdx.z) * N * d;

  float sum = 0.0f;
  for (int j0 = 0; j0 < N; j0 += TILE) {
    P_smem[y][x] = row0 + y < N && j0 + x < N ? P[size_t(row0 + y) * N + j0 + x] : 0.0f;
    V_smem[y][x] = j0 + y < N ? V[(j0 + y) * d + col0 + x] : 0.0f;
    // Read after write: a thread reads a row of P and a column of V.
    __syncthreads();
    for (int k = 0; k < TILE; ++k) sum += P_smem[y][k] * V_smem[k][x];
    // Write after read: the next tiles overwrite what slower threads still read.
    __syncthreads();
  }
  if (row0 + y < N) O[(row0 + y) * d + col0 + x] = sum;
}

static void check(cudaError_t error, int exit_code = 1) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(exit_code);
}

using Number = float;  // of Q, K, V and O
constexpr char name[] = "Safe softmax";
constexpr double tolerance = 1e-5;  // sums of d and of N numbers of about 1, rounded by 6e-8 each

/// Computes O; all pointers are to HBM.
static void attention(int N, int heads, bool causal, const float* Q, const float* K, const float* V,
                      float* O) {
  static float* S = nullptr;  // [heads, N, N], for the N of the first call
  if (S == nullptr) check(cudaMalloc(&S, sizeof(float) * heads * N * N), 3);
  const unsigned rows = unsigned(heads) * N, blocks = (rows + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK;
  const unsigned tiles = (N + TILE - 1) / TILE;
  scores<<<dim3(tiles, tiles, heads), dim3(TILE, TILE)>>>(N, causal, Q, K, S);
  softmax<<<dim3(blocks), dim3(32, ROWS_PER_BLOCK)>>>(N, rows, S);
  output<<<dim3(d / TILE, tiles, heads), dim3(TILE, TILE)>>>(N, S, V, O);
}

// ==== Harness, the same text in all forward files: O against double precision, and the time. ====
static double largest_error(int N, bool causal, const std::vector<Number> (&host)[4]) {
  const auto& [Q, K, V, O] = host;
  const size_t rows = O.size() / d, step = rows / 1000 | 1;  // odd, to hit every row of a tile
  double largest = 0.0;
  for (size_t i = 0; i < rows; i += step) {
    double l = 0.0, o[d] = {};
    for (size_t j = i / N * N; j < (causal ? i + 1 : i / N * N + N); ++j) {
      double S = 0.0;
      for (int c = 0; c < d; ++c) S += double(float(Q[i * d + c])) * float(K[j * d + c]);
      const double P = std::exp(S / std::sqrt(d));
      l += P;
      for (int c = 0; c < d; ++c) o[c] += P * float(V[j * d + c]);
    }
    for (int c = 0; c < d; ++c) {
      const double error = std::abs(float(O[i * d + c]) - o[c] / l);
      if (std::isnan(error) || error > largest) largest = error;
    }
  }
  return largest;
}

int main(int argc, char** argv) {
  const bool causal = argc > 1 && std::strcmp(argv[argc - 1], "causal") == 0;
  int sizes[] = {1024, 128, 20}, least[] = {1, 1, 0};  // N, heads, timed runs
  for (int n = 0; n < argc - 1 - causal; ++n) {
    char rest;  // after the number: an error
    const bool number = n < 3 && std::sscanf(argv[n + 1], "%d%c", &sizes[n], &rest) == 1;
    if (number && least[n] <= sizes[n] && sizes[n] <= 65535) continue;
    std::fprintf(stderr, "bad '%s'; usage: [N [heads [runs]]] [causal], max 65535\n", argv[n + 1]);
    return 2;
  }
  const auto [N, heads, runs] = sizes;
  const size_t size = size_t(heads) * N * d, bytes = size * sizeof(Number);
  std::vector<Number> host[4];  // Q, K, V and O: where no thread writes O, it stays wrong
  Number* device[4];
  for (int a = 0; a < 4; ++a) {
    for (size_t e = 0; e < size; ++e) host[a].push_back(float(std::rand() % 4001) / 1000 - 2);
    check(cudaMalloc(&device[a], bytes), 3);  // 3: no GPU, or not enough memory
    check(cudaMemcpy(device[a], host[a].data(), bytes, cudaMemcpyHostToDevice));
  }
  cudaEvent_t begin, end;
  for (cudaEvent_t* event : {&begin, &end}) check(cudaEventCreate(event));
  std::vector<float> ms(runs + 1);  // the first run is a warm-up
  for (float& time : ms) {
    check(cudaEventRecord(begin));
    attention(N, heads, causal, device[0], device[1], device[2], device[3]);
    check(cudaGetLastError());
    check(cudaEventRecord(end));
    check(cudaEventSynchronize(end));
    check(cudaEventElapsedTime(&time, begin, end));
  }
  check(cudaMemcpy(host[3].data(), device[3], bytes, cudaMemcpyDeviceToHost));
  const double error = largest_error(N, causal, host);
  std::printf("%s, N = %d, %d heads%s: largest error %.2g, tolerance %.2g: %s\n", name, N, heads,
              causal ? ", causal" : "", error, tolerance, error <= tolerance ? "ok" : "WRONG");
  std::sort(ms.begin() + 1, ms.end());
  const double gflop = 2e-9 * heads * N * (causal ? N + 1 : 2 * N) * d, time = ms[(runs + 1) / 2];
  if (runs > 0) std::printf("median of %d runs: %.3f ms, %.1f TFLOP/s\n", runs, time, gflop / time);
  return error <= tolerance ? 0 : 1;
}
