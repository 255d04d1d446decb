// FlashAttention-2 in one file (Dao 2023, Algorithm 1): queries outside, O, m and l in registers.
//
//   for every tile i of Q, one block per tile:   O = 0,   m = -inf,   l = 0
//     for every tile j of K and V:
//       S = Q_i K_j^T / sqrt(d)       [Br, d] x [d, Bc]    causal: S_ij = -inf if j > i
//       m_new = max(m, rowmax S),   alpha = e^(m - m_new)
//       P = e^(S - m_new),   l = alpha l + rowsum P
//       O = alpha O + P V_j           [Br, Bc] x [Bc, d]
//     O_i = O / l
//
// Q, K, V and O are [heads, N, d] in fp32, row after row, with d = 64. Keys beyond N are masked.
// A warp computes 32 rows. Its lanes form a grid, y = 0..3 and x = 0..7: a lane has rows y, y + 4,
// ..., y + 28 and keys x, x + 8, x + 16, x + 24 of S. The 8 lanes of a row share its maximum in
// each tile, and add up its l after the loop. For its columns of O, four from 4 x on and four from
// d / 2 + 4 x on, a lane needs all keys: P goes through shared memory, within a warp. Br = 64: then
// Q, K, V and P fill 44 of 48 KB.
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
constexpr int Br = 64, Bc = 32;             // rows of a tile of Q; of a tile of K and V
constexpr int Y = 4, X = 8;                 // lanes of a warp
constexpr int ROWS = 8;                     // of a thread, in S and O
constexpr int KEYS = Bc / X, COLS = d / X;  // columns of a thread in S; in O
constexpr int THREADS = Br / ROWS * X;
static_assert(X * Y == 32 && COLS == 8 && Br % (Y * ROWS) == 0 && Bc % X == 0, "whole warps");
constexpr int PAD = 4;  // floats after each row, for float4: a warp reads rows from different banks

/// Rows row0, row0 + 1, ... of M, [N, d], to shared memory; beyond M zeros, as 0 times NaN is NaN.
template <int Rows, int Cols>
__device__ void load_tile(float (&tile)[Rows][Cols], const float4* M, int row0, int N) {
  for (int e = threadIdx.x; e < Rows * d / 4; e += THREADS) {
    const int row = e / (d / 4), c = e % (d / 4);
    const float4 four = row0 + row < N ? M[(row0 + row) * (d / 4) + c] : float4{};
    *reinterpret_cast<float4*>(&tile[row][4 * c]) = four;
  }
}

/// Q, K, V, O: four numbers per float4, which one instruction loads.
__global__ void __launch_bounds__(THREADS)
    fa2_forward(int N, bool causal, const float4* Q, const float4* K, const float4* V, float4* O) {
  __shared__ __align__(16) float Q_smem[Br][d + PAD], K_smem[Bc][d + PAD], V_smem[Bc][d + PAD];
  __shared__ float P_smem[Br][Bc + X];  // + X: 8 keys of 4 rows, written at once, are in 32 banks
  const size_t offset = size_t(blockIdx.y) * N * (d / 4);  // where this head begins
  const int query0 = blockIdx.x * Br, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int x = lane % X;                       // this thread's keys: x, x + X, x + 2 X, ...
  const int row0 = warp * Y * ROWS + lane / X;  // its rows: row0, row0 + Y, row0 + 2 Y, ...

  load_tile(Q_smem, Q + offset, query0, N);
  float O_reg[ROWS][COLS] = {}, m[ROWS], l[ROWS] = {};  // l: of this thread's columns alone
  for (int r = 0; r < ROWS; ++r) m[r] = -INFINITY;

  for (int key0 = 0; key0 < (causal ? min(N, query0 + Br) : N); key0 += Bc) {
    load_tile(K_smem, K + offset, key0, N);
    load_tile(V_smem, V + offset, key0, N);
    // Read after write: each thread reads rows of Q, K and V that others have loaded.
    __syncthreads();

    // S = Q_i K_j^T, as a sum of outer products: each number loaded serves a row or column of S.
    float S[ROWS][KEYS] = {};
#pragma unroll 4
    for (int k = 0; k < d; ++k) {
      float q[ROWS], key[KEYS];
      for (int r = 0; r < ROWS; ++r) q[r] = Q_smem[row0 + Y * r][k];
      for (int c = 0; c < KEYS; ++c) key[c] = K_smem[x + X * c][k];
      for (int r = 0; r < ROWS; ++r)
        for (int c = 0; c < KEYS; ++c) S[r][c] += q[r] * key[c];
    }

    // The softmax, in powers of 2: e^(s / sqrt(d)) = 2^(factor s). X lanes share a row.
    const float factor = 1.44269504f / sqrtf(d);  // log2(e) / sqrt(d)
    for (int r = 0; r < ROWS; ++r) {
      float m_new = m[r];
      for (int c = 0; c < KEYS; ++c) {
        const int i = query0 + row0 + Y * r, j = key0 + x + X * c;
        if (j >= N || (causal && j > i)) S[r][c] = -INFINITY;
        m_new = fmaxf(m_new, S[r][c]);
      }
      for (int other = 1; other < X; other *= 2)
        m_new = fmaxf(m_new, __shfl_xor_sync(0xFFFFFFFFu, m_new, other));
      const float alpha = exp2f(factor * (m[r] - m_new));  // m_new > -inf: every row sees key 0
      m[r] = m_new;
      l[r] *= alpha;
      for (int c = 0; c < COLS; ++c) O_reg[r][c] *= alpha;
      for (int c = 0; c < KEYS; ++c) {
        const float p = exp2f(factor * S[r][c] - factor * m_new);
        l[r] += p;
        P_smem[row0 + Y * r][x + X * c] = p;
      }
    }
    // Read after write: each lane reads what the others of its warp have written of its rows of P.
    __syncwarp();

    // O += P V_j. This thread's columns of O: two runs of four, from 4 x and from d / 2 + 4 x on.
#pragma unroll 4
    for (int k = 0; k < Bc; ++k) {
      float p[ROWS], v[COLS];
      for (int r = 0; r < ROWS; ++r) p[r] = P_smem[row0 + Y * r][k];
      for (int c = 0; c < COLS; ++c) v[c] = V_smem[k][c / 4 * (d / 2) + 4 * x + c % 4];
      for (int r = 0; r < ROWS; ++r)
        for (int c = 0; c < COLS; ++c) O_reg[r][c] += p[r] * v[c];
    }
    // Write after read: the next K_j and V_j overwrite what slower threads still read.
    __syncthreads();
  }

  for (int r = 0; r < ROWS; ++r) {
    for (int other = 1; other < X; other *= 2) l[r] += __shfl_xor_sync(0xFFFFFFFFu, l[r], other);
    const int i = query0 + row0 + Y * r;
    if (i >= N) continue;
    for (int c = 0; c < COLS; c += 4) {
      const float* const o = &O_reg[r][c];
      O[offset + i * (d / 4) + c / 4 * (d / 8) + x] = {o[0] / l[r], o[1] / l[r], o[2] / l[r],
                                                       o[3] / l[r]};
    }
  }
}

static void check(cudaError_t error, int exit_code = 1) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(exit_code);
}

using Number = float;  // of Q, K, V and O
constexpr char name[] = "FlashAttention-2";
constexpr double tolerance = 1e-5;  // sums of d and of N numbers of about 1, rounded by 6e-8 each

/// Computes O; all pointers are to HBM.
static void attention(int N, int heads, bool causal, const float* Q, const float* K, const float* V,
                      float* O) {
  fa2_forward<<<dim3((N + Br - 1) / Br, heads), dim3(THREADS)>>>(
      N, causal, (const float4*)Q, (const float4*)K, (const float4*)V, (float4*)O);
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
