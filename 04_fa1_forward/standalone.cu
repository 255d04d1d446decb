// FlashAttention-1 in one file (Dao et al. 2022, Algorithm 1): S and P never reach HBM. One kernel.
//
//   O = 0,   m = -inf,   l = 0
//   for every tile j of K and V, for every tile i of Q:
//     S = Q_i K_j^T / sqrt(d)         [Br, d] x [d, Bc]    causal: S_ij = -inf if j > i
//     m~ = rowmax S,   P = e^(S - m~),   l~ = rowsum P
//     m_new = max(m, m~),   l_new = e^(m - m_new) l + e^(m~ - m_new) l~        the merge of 03
//     O_i = (e^(m - m_new) l O_i + e^(m~ - m_new) P V_j) / l_new     P V_j: [Br, Bc] x [Bc, d]
//
// Q, K, V and O are [heads, N, d] in fp32, row after row, with d = 64. A block computes a head: K_j
// and V_j are in its shared memory, and each query belongs to a thread, which has its row of S and
// P in registers. From one tile of keys to the next, the row's O, m and l wait in HBM.
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
constexpr int Br = 256, Bc = 64;  // rows of a tile of Q; of a tile of K and V
constexpr int THREADS = Br;       // each has a row

/// What a part of a row of S has: its maximum m, and l, the sum of its e^(S - m).
struct RowStats {
  float m, l;
};

/// What both have together. The order in which parts merge does not matter, nor does their size.
__device__ RowStats merge(RowStats a, RowStats b) {
  const float m = fmaxf(a.m, b.m);
  return {m, expf(a.m - m) * a.l + expf(b.m - m) * b.l};
}

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
    fa1_forward(int N, bool causal, const float4* Q, const float4* K, const float4* V, float4* O,
                RowStats* stats) {
  __shared__ __align__(16) float K_smem[Bc][d], V_smem[Bc][d];
  const size_t offset = size_t(blockIdx.x) * N * (d / 4);  // where this head begins

  for (int key0 = 0; key0 < N; key0 += Bc) {
    load_tile(K_smem, K + offset, key0, N);
    load_tile(V_smem, V + offset, key0, N);
    // Read after write: each thread reads all of K_j and V_j.
    __syncthreads();

    for (int i = threadIdx.x; i < N; i += Br) {      // this thread's row of each Q_i
      const int keys = (causal ? i + 1 : N) - key0;  // that it sees, counted from key0
      if (keys <= 0) continue;

      // A row of S = Q_i K_j^T / sqrt(d). It is in registers, as nvcc unrolls the loops over j.
      float S[Bc] = {};
      for (int c = 0; c < d; c += 4) {
        const float4 four = Q[offset + (i * d + c) / 4];
        const float q[4] = {four.x, four.y, four.z, four.w};
        for (int j = 0; j < Bc; ++j)
          for (int e = 0; e < 4; ++e) S[j] += q[e] * K_smem[j][c + e];
      }

      // Its softmax: of this tile alone, then merged with the previous tiles.
      RowStats tile_stats{-INFINITY, 0.0f};
      for (int j = 0; j < Bc; ++j) {
        S[j] = j < keys ? S[j] / sqrtf(d) : -INFINITY;
        tile_stats.m = fmaxf(tile_stats.m, S[j]);
      }
      for (int j = 0; j < Bc; ++j) {
        S[j] = expf(S[j] - tile_stats.m);  // P; m > -inf, as keys > 0
        tile_stats.l += S[j];
      }
      RowStats& saved_stats = stats[blockIdx.x * size_t(N) + i];
      const RowStats old_stats = key0 > 0 ? saved_stats : RowStats{-INFINITY, 0.0f};
      const RowStats new_stats = merge(old_stats, tile_stats);
      saved_stats = new_stats;

      // O_i, four columns at a time: the old one and P V_j, each with its factor.
      const float old_factor = expf(old_stats.m - new_stats.m) * old_stats.l / new_stats.l;
      const float new_factor = expf(tile_stats.m - new_stats.m) / new_stats.l;
      for (int c = 0; c < d; c += 4) {
        float PV[4] = {};
        for (int j = 0; j < Bc; ++j)
          for (int e = 0; e < 4; ++e) PV[e] += S[j] * V_smem[j][c + e];
        float4& o = O[offset + (i * d + c) / 4];
        const float4 O_i = key0 > 0 ? o : float4{};
        o = {old_factor * O_i.x + new_factor * PV[0], old_factor * O_i.y + new_factor * PV[1],
             old_factor * O_i.z + new_factor * PV[2], old_factor * O_i.w + new_factor * PV[3]};
      }
    }
    // Write after read: the next K_j and V_j overwrite what slower threads still read.
    __syncthreads();
  }
}

static void check(cudaError_t error, int exit_code = 1) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(exit_code);
}

using Number = float;  // of Q, K, V and O
constexpr char name[] = "FlashAttention-1";
constexpr double tolerance = 1e-5;  // sums of d and of N numbers of about 1, rounded by 6e-8 each

/// Computes O; all pointers are to HBM.
static void attention(int N, int heads, bool causal, const float* Q, const float* K, const float* V,
                      float* O) {
  static RowStats* stats = nullptr;  // [heads, N], for the N of the first call
  if (stats == nullptr) check(cudaMalloc(&stats, sizeof(RowStats) * heads * N), 3);
  fa1_forward<<<dim3(heads), dim3(THREADS)>>>(N, causal, (const float4*)Q, (const float4*)K,
                                              (const float4*)V, (float4*)O, stats);
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
