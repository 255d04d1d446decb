// FlashAttention-2 in one file, fp32 (Dao 2023, Algorithm 1): queries in the outer loop, both products from register tiles.
//
//   for every tile i of Q, a block per tile:   O = 0, l = 0, m = -inf
//     for every tile j of K and V:
//       S = Q_i K_j^T / sqrt(d)                             [Br, d] x [d, Bc]
//       m_new = max(m, rowmax S),   alpha = e^(m - m_new)
//       P = e^(S - m_new),   l = alpha l + rowsum P
//       O = alpha O + P V_j                                 [Br, Bc] x [Bc, d]
//     O_i = O / l
//
// Q, K, V and O are [heads, N, d] in fp32, with d = 64; a causal problem masks key j of query i if j > i. Each warp owns 32
// rows of S and O. Its lanes form 4 rows of 8, and a lane holds 8 x 4 elements of S and 8 x 8 of O in registers: a step of
// S = Q K^T loads 8 + 4 numbers from shared memory for 32 multiply-adds, a step of P V loads 8 + 8 for 64.
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
constexpr int Br = 64, Bc = 32;             // rows of a tile of Q; of a tile of K and V
constexpr int Y = 4, X = 8;                 // the lanes of a warp
constexpr int ROWS = 8;                     // of a thread
constexpr int KEYS = Bc / X, COLS = d / X;  // columns of S and of O of a thread
constexpr int THREADS = Br / ROWS * X;
// Floats after each row in shared memory: then neighbouring rows begin in different banks. Rows of P get X instead, as a warp
// stores X floats of each of 4 rows: 32 different banks.
constexpr int PAD = 4;

/// Rows row0, row0 + 1, ... of M, [N, d], as a tile in shared memory; zeros beyond the last row, since 0 times NaN is NaN.
template <int Rows>
__device__ void load_tile(float (&tile)[Rows][d + PAD], const float4* M, int row0, int N) {
  for (int e = threadIdx.x; e < Rows * d / 4; e += THREADS) {
    const int row = e / (d / 4), c = e % (d / 4);
    *reinterpret_cast<float4*>(&tile[row][4 * c]) = row0 + row < N ? M[(row0 + row) * (d / 4) + c] : float4{};
  }
}

__global__ void __launch_bounds__(THREADS)
    attention(int N, bool causal, const float4* Q, const float4* K, const float4* V, float4* O) {
  __shared__ __align__(16) float Q_smem[Br][d + PAD], K_smem[Bc][d + PAD], V_smem[Bc][d + PAD], P_smem[Br][Bc + X];
  const size_t head = size_t(blockIdx.y) * N * (d / 4);
  const int row0 = blockIdx.x * Br, x = threadIdx.x % X;
  const int y = threadIdx.x / 32 * (Y * ROWS) + threadIdx.x % 32 / X;  // this thread's rows: y, y + Y, y + 2 Y, ...

  load_tile(Q_smem, Q + head, row0, N);
  float O_reg[ROWS][COLS] = {}, m[ROWS], l[ROWS] = {};  // l: over this lane's columns only
  for (int r = 0; r < ROWS; ++r) m[r] = -INFINITY;

  for (int col0 = 0; col0 < (causal ? min(N, row0 + Br) : N); col0 += Bc) {
    load_tile(K_smem, K + head, col0, N);
    load_tile(V_smem, V + head, col0, N);
    __syncthreads();  // read after write: a thread reads rows of Q, K and V that other threads have loaded

    // S = Q_i K_j^T as a sum of outer products. This thread's keys: x, x + X, x + 2 X, ...
    float S[ROWS][KEYS] = {};
#pragma unroll 4
    for (int k = 0; k < d; ++k) {
      float a[ROWS], b[KEYS];
      for (int r = 0; r < ROWS; ++r) a[r] = Q_smem[y + Y * r][k];
      for (int c = 0; c < KEYS; ++c) b[c] = K_smem[x + X * c][k];
      for (int r = 0; r < ROWS; ++r) {
        for (int c = 0; c < KEYS; ++c) S[r][c] += a[r] * b[c];
      }
    }

    // The softmax of each row so far, in powers of 2: e^(s / sqrt(d)) = 2^(factor s).
    const float factor = 1.44269504f / sqrtf(d);
    for (int r = 0; r < ROWS; ++r) {
      const int i = row0 + y + Y * r;
      float m_new = m[r];
      for (int c = 0; c < KEYS; ++c) {
        const int j = col0 + x + X * c;
        S[r][c] = j < N && (!causal || j <= i) ? factor * S[r][c] : -INFINITY;
        m_new = fmaxf(m_new, S[r][c]);
      }
      for (int other = 1; other < X; other *= 2) m_new = fmaxf(m_new, __shfl_xor_sync(0xFFFFFFFFu, m_new, other));
      const float alpha = exp2f(m[r] - m_new);  // not NaN: every row sees key 0, hence m_new > -inf
      m[r] = m_new;
      l[r] *= alpha;
      for (int c = 0; c < KEYS; ++c) {
        const float p = exp2f(S[r][c] - m_new);
        l[r] += p;
        P_smem[y + Y * r][x + X * c] = p;
      }
      for (int c = 0; c < COLS; ++c) O_reg[r][c] *= alpha;
    }
    __syncwarp();  // read after write: a lane reads what the other lanes have written of its rows of P

    // O = O + P V_j. This thread's columns of O: two runs of four, from 4 x and from 4 x + d / 2 on.
#pragma unroll 4
    for (int k = 0; k < Bc; ++k) {
      float a[ROWS], b[COLS];
      for (int r = 0; r < ROWS; ++r) a[r] = P_smem[y + Y * r][k];
      for (int c = 0; c < COLS; ++c) b[c] = V_smem[k][c / 4 * (d / 2) + 4 * x + c % 4];
      for (int r = 0; r < ROWS; ++r) {
        for (int c = 0; c < COLS; ++c) O_reg[r][c] += a[r] * b[c];
      }
    }
    __syncthreads();  // write after read: the next K_j, V_j and P overwrite what slower threads still read
  }

  for (int r = 0; r < ROWS; ++r) {
    const int i = row0 + y + Y * r;
    for (int other = 1; other < X; other *= 2) l[r] += __shfl_xor_sync(0xFFFFFFFFu, l[r], other);
    if (i >= N) continue;
    for (int c = 0; c < COLS; c += 4) {
      const float* const o = &O_reg[r][c];
      O[head + i * (d / 4) + c / 4 * (d / 8) + x] = {o[0] / l[r], o[1] / l[r], o[2] / l[r], o[3] / l[r]};
    }
  }
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
  float4* device[4];
  std::minstd_rand random;
  std::uniform_real_distribution<float> uniform(-2.0f, 2.0f);
  for (int a = 0; a < 4; ++a) {
    for (size_t i = 0; i < size; ++i) host[a].push_back(uniform(random));
    check(cudaMalloc(&device[a], size * sizeof(float)));
    check(cudaMemcpy(device[a], host[a].data(), size * sizeof(float), cudaMemcpyHostToDevice));
  }
  const auto [Q, K, V, O] = device;

  cudaEvent_t begin, end;
  for (cudaEvent_t* event : {&begin, &end}) check(cudaEventCreate(event));
  std::vector<float> ms(runs + 1);  // the first run is a warm-up
  for (float& time : ms) {
    check(cudaEventRecord(begin));
    attention<<<dim3((N + Br - 1) / Br, heads), dim3(THREADS)>>>(N, causal, Q, K, V, O);
    check(cudaGetLastError());
    check(cudaEventRecord(end));
    check(cudaEventSynchronize(end));
    check(cudaEventElapsedTime(&time, begin, end));
  }
  check(cudaMemcpy(host[3].data(), O, size * sizeof(float), cudaMemcpyDeviceToHost));

  // Sums of 64 and of N fp32 numbers of about 1, with rounding errors of 6e-8, are accurate to 2e-6.
  const double tolerance = 1e-5;
  const double error = largest_error(N, causal, host);
  std::printf("FlashAttention-2 on %s: N = %d, %d heads, d = %d%s\n", gpu.name, N, heads, d, causal ? ", causal" : "");
  std::printf("largest error %.2g, tolerance %.2g: %s\n", error, tolerance, error <= tolerance ? "ok" : "WRONG");
  std::sort(ms.begin() + 1, ms.end());
  const double median = ms[(runs + 1) / 2], flop = 4.0 * heads * N * (causal ? (N + 1) / 2.0 : N) * d;  // two products
  if (runs > 0) std::printf("median of %d runs: %.3f ms, %.1f TFLOP/s\n", runs, median, flop / median / 1e9);
  return error <= tolerance ? 0 : 1;
}
