// FlashAttention-1, backward, in one file (Dao et al. 2022, Algorithm 4): P is computed once more.
//
//   L_i = ln sum_j e^S_ij, saved by the forward pass
//   for every tile j of K and V:   dK_j = 0,   dV_j = 0
//     for every tile i of Q:
//       P = e^(Q_i K_j^T / sqrt(d) - L_i)       [Br, d] x [d, Bc]    causal: P_ij = 0 if j > i
//       dP = dO_i V_j^T                         [Br, d] x [d, Bc]
//       D_i = rowsum(dO_i o O_i)                o: element by element
//       dS = P o (dP - D_i)
//       dQ_i += dS K_j / sqrt(d)                [Br, Bc] x [Bc, d]
//       dV_j += P^T dO_i                        [Bc, Br] x [Br, d]
//       dK_j += dS^T Q_i / sqrt(d)              [Bc, Br] x [Br, d]
//
// All matrices are [heads, N, d] in fp32, row after row, with d = 64. A block computes a head, with
// K_j, V_j, Q_i, dO_i, P and dS in shared memory; dK_j and dV_j are in registers, dQ is in HBM.
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
constexpr int Br = 32, Bc = 32;  // rows of a tile of Q and dO; of K and V: a lane for each
constexpr int WARPS = 4, THREADS = 32 * WARPS;
constexpr int KEYS = Bc / WARPS, COLS = d / WARPS;  // columns of a thread in P and dS; in dK and dV
constexpr int ROWS = Br * d / THREADS;              // of a thread in dQ
static_assert(Br == 32 && Bc == 32 && Bc % WARPS == 0 && d % WARPS == 0, "whole warps");
constexpr int PAD = 4;  // floats after a row: nvcc reads four c at once, 8 lanes other banks

/// Rows row0, row0 + 1, ... of M, [N, d], to shared memory; beyond M zeros, as 0 times NaN is NaN.
template <int Rows, int Cols>
__device__ void load_tile(float (&tile)[Rows][Cols], const float* M, int row0, int N) {
  for (int e = threadIdx.x; e < Rows * d / 4; e += THREADS) {
    const int row = e / (d / 4), c = e % (d / 4) * 4;
    *reinterpret_cast<float4*>(&tile[row][c]) =
        row0 + row < N ? reinterpret_cast<const float4*>(M)[((row0 + row) * d + c) / 4] : float4{};
  }
}

__global__ void __launch_bounds__(THREADS)
    fa1_backward(int N, bool causal, const float* Q, const float* K, const float* V, const float* O,
                 const float* dO, const float* L, float* dQ, float* dK, float* dV) {
  __shared__ __align__(16) float K_smem[Bc][d + PAD], V_smem[Bc][d + PAD];
  __shared__ __align__(16) float Q_smem[Br][d + PAD], dO_smem[Br][d + PAD];
  __shared__ __align__(16) float P_smem[Br][Bc + PAD], dS_smem[Br][Bc + PAD];
  const size_t head_row0 = size_t(blockIdx.x) * N;  // of this head
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  for (int key0 = 0; key0 < N; key0 += Bc) {
    load_tile(K_smem, K + head_row0 * d, key0, N);
    load_tile(V_smem, V + head_row0 * d, key0, N);
    float dK_reg[COLS] = {}, dV_reg[COLS] = {};  // row `lane` of dK_j and dV_j, this warp's columns

    for (int query0 = causal ? key0 : 0; query0 < N; query0 += Br) {
      load_tile(Q_smem, Q + head_row0 * d, query0, N);
      load_tile(dO_smem, dO + head_row0 * d, query0, N);
      // Read after write: each thread reads rows of all four tiles that others have loaded.
      __syncthreads();

      // P and dS: row `lane` of the tile, this warp's keys.
      const int i = query0 + lane;
      float S[KEYS] = {}, dP[KEYS] = {}, D = 0.0f;  // D: again in every warp, O uncoalesced
      for (int c = 0; c < d; ++c) {
        for (int k = 0; k < KEYS; ++k) {
          S[k] += Q_smem[lane][c] * K_smem[KEYS * warp + k][c];
          dP[k] += dO_smem[lane][c] * V_smem[KEYS * warp + k][c];
        }
        if (i < N) D += dO_smem[lane][c] * O[(head_row0 + i) * d + c];
      }
      for (int k = 0; k < KEYS; ++k) {
        const int j = key0 + KEYS * warp + k;
        const bool visible = i < N && j < N && (!causal || j <= i);
        const float P = visible ? expf(S[k] / sqrtf(d) - L[head_row0 + i]) : 0.0f;
        P_smem[lane][KEYS * warp + k] = P;
        dS_smem[lane][KEYS * warp + k] = P * (dP[k] - D);
      }
      // Read after write: below each thread reads rows and columns of P and dS.
      __syncthreads();

      // dQ_i += dS K_j / sqrt(d): column x of rows that no other thread ever touches: no barrier.
      const int x = threadIdx.x % d, y = threadIdx.x / d * ROWS;
      float dQ_reg[ROWS] = {};
      for (int k = 0; k < Bc; ++k)
        for (int r = 0; r < ROWS; ++r) dQ_reg[r] += dS_smem[y + r][k] * K_smem[k][x];
      for (int r = 0; r < ROWS && query0 + y + r < N; ++r) {
        float& sum = dQ[(head_row0 + query0 + y + r) * d + x];
        sum = (key0 > 0 ? sum : 0.0f) + dQ_reg[r] / sqrtf(d);
      }

      // dV_j += P^T dO_i and dK_j += dS^T Q_i; dK_j is scaled at the end.
      for (int r = 0; r < Br; ++r) {
        for (int c = 0; c < COLS; ++c) {
          dV_reg[c] += P_smem[r][lane] * dO_smem[r][COLS * warp + c];
          dK_reg[c] += dS_smem[r][lane] * Q_smem[r][COLS * warp + c];
        }
      }
      // Write after read: the next tiles overwrite what slower threads still read.
      __syncthreads();
    }
    for (int c = 0; c < COLS && key0 + lane < N; ++c) {
      dK[(head_row0 + key0 + lane) * d + COLS * warp + c] = dK_reg[c] / sqrtf(d);
      dV[(head_row0 + key0 + lane) * d + COLS * warp + c] = dV_reg[c];
    }
  }
}

static void check(cudaError_t error, int exit_code = 1) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(exit_code);
}

using Number = float;  // of all matrices
constexpr char name[] = "FlashAttention-1, backward";
constexpr double tolerance = 3e-5;  // sums of d and of N numbers, rounded by 6e-8 each

/// Computes dQ, dK and dV; all pointers are to HBM.
static void backward(int N, int heads, bool causal, const float* Q, const float* K, const float* V,
                     const float* O, const float* dO, const float* L, float* dQ, float* dK,
                     float* dV) {
  fa1_backward<<<dim3(heads), dim3(THREADS)>>>(N, causal, Q, K, V, O, dO, L, dQ, dK, dV);
}

// ==== Harness, the same text in all backward files: forward pass, check in double, time. ====
__global__ void forward(int N, bool causal, size_t rows, const Number* Q, const Number* K,
                        const Number* V, Number* O, float* L) {
  const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows) return;
  float l = 0.0f, o[d] = {};
  for (size_t j = i / N * N; j < (causal ? i + 1 : i / N * N + N); ++j) {
    float S = 0.0f;
    for (int c = 0; c < d; ++c) S += float(Q[i * d + c]) * float(K[j * d + c]) / sqrtf(d);
    const float P = expf(S);  // no overflow without a maximum: |S| <= 4 sqrt(d), as |Q|, |K| <= 2
    for (int c = 0; c < d; ++c) o[c] += P * float(V[j * d + c]);
    l += P;
  }
  for (int c = 0; c < d; ++c) O[i * d + c] = o[c] / l;
  L[i] = logf(l);
}

static double largest_error(int N, bool causal, const std::vector<Number> (&host)[8], float* L) {
  enum { Q, K, V, O, dO, dQ, dK, dV };
  const auto dot = [&host](int a, size_t i, int b, size_t j) {
    double sum = 0.0;
    for (int c = 0; c < d; ++c) sum += 1.0 * float(host[a][i * d + c]) * float(host[b][j * d + c]);
    return sum;
  };
  const auto P_and_dS = [&](size_t i, size_t j) {  // of query i and key j
    const double P = causal && j > i ? 0.0 : std::exp(dot(Q, i, K, j) / std::sqrt(d) - L[i]);
    return std::pair(P, P * (dot(dO, i, V, j) - dot(dO, i, O, i)));
  };
  const size_t rows = host[O].size() / d, step = rows / 300 | 1;  // odd, to hit every row of a tile
  double largest = 0.0;
  for (size_t i = 0; i < rows; i += step) {
    double sum_P = 0.0, x[3][d] = {};  // rows of dQ, dK and dV
    for (size_t j = i / N * N; j < i / N * N + N; ++j) {
      const auto [P_ij, dS_ij] = P_and_dS(i, j);
      const auto [P_ji, dS_ji] = P_and_dS(j, i);
      for (int c = 0; c < d; ++c) {
        x[0][c] += dS_ij * float(host[K][j * d + c]) / std::sqrt(d);
        x[1][c] += dS_ji * float(host[Q][j * d + c]) / std::sqrt(d);
        x[2][c] += P_ji * float(host[dO][j * d + c]);
      }
      sum_P += P_ij;
    }
    largest = std::max(largest, std::abs(sum_P - 1.0));  // L is right if the sum is 1
    for (int e = 0; e < 3 * d; ++e) {
      const auto error = std::abs(float(host[dQ + e / d][i * d + e % d]) - x[e / d][e % d]);
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
  const size_t rows = size_t(heads) * N, bytes = rows * d * sizeof(Number);
  std::vector<Number> host[8];  // Q, K, V, O, dO, dQ, dK, dV: what no thread writes stays wrong
  Number* device[8];
  for (int a = 0; a < 8; ++a) {
    for (size_t e = 0; e < rows * d; ++e) host[a].push_back(float(std::rand() % 4001) / 1000 - 2);
    check(cudaMalloc(&device[a], bytes), 3);  // 3: no GPU, or not enough memory
    check(cudaMemcpy(device[a], host[a].data(), bytes, cudaMemcpyHostToDevice));
  }
  const auto [Q, K, V, O, dO, dQ, dK, dV] = device;
  float* L;
  check(cudaMalloc(&L, rows * sizeof(float)), 3);
  forward<<<dim3(unsigned(rows + 127) / 128), dim3(128)>>>(N, causal, rows, Q, K, V, O, L);
  cudaEvent_t begin, end;
  for (cudaEvent_t* event : {&begin, &end}) check(cudaEventCreate(event));
  std::vector<float> ms(runs + 1), host_L(rows);  // the first run is a warm-up
  for (float& time : ms) {
    check(cudaEventRecord(begin));
    backward(N, heads, causal, Q, K, V, O, dO, L, dQ, dK, dV);
    check(cudaGetLastError());
    check(cudaEventRecord(end));
    check(cudaEventSynchronize(end));
    check(cudaEventElapsedTime(&time, begin, end));
  }
  check(cudaMemcpy(host_L.data(), L, rows * sizeof(float), cudaMemcpyDeviceToHost));
  for (int a = 3; a < 8; ++a)
    check(cudaMemcpy(host[a].data(), device[a], bytes, cudaMemcpyDeviceToHost));
  const double error = largest_error(N, causal, host, host_L.data());
  std::printf("%s, N = %d, %d heads%s: largest error %.2g, tolerance %.2g: %s\n", name, N, heads,
              causal ? ", causal" : "", error, tolerance, error <= tolerance ? "ok" : "WRONG");
  std::sort(ms.begin() + 1, ms.end());
  const double gflop = 5e-9 * heads * N * (causal ? N + 1 : 2 * N) * d, time = ms[(runs + 1) / 2];
  if (runs > 0) std::printf("median of %d runs: %.3f ms, %.1f TFLOP/s\n", runs, time, gflop / time);
  return error <= tolerance ? 0 : 1;
}
