// FlashAttention-1 in one file (Dao et al. 2022, Algorithm 1): S and P never reach HBM. One kernel, a block per head.
//
//   for every tile j of K and V, for every tile i of Q:
//     S = Q_i K_j^T / sqrt(d)                                         [Br, d] x [d, Bc]
//     m~ = rowmax S,   P = e^(S - m~),   l~ = rowsum P                of this tile alone
//     m_new = max(m, m~),   l_new = e^(m - m_new) l + e^(m~ - m_new) l~
//     O_i = (l e^(m - m_new) O_i + e^(m~ - m_new) P V_j) / l_new      [Br, Bc] x [Bc, d]
//
// Q, K, V and O are [heads, N, d] in fp32, with d = 64; a causal problem masks key j of query i if j > i. K_j and V_j are in
// shared memory. Each query belongs to one thread, which holds its row of S in registers (nvcc unrolls loops with constant
// bounds); between two tiles of keys its O, m and l wait in HBM.
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
constexpr int Br = 256, Bc = 64;  // rows of a tile of Q, also the threads of a block; rows of a tile of K and V

__device__ float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }

/// Q, K, V, O: [heads, N, d], four elements each; m, l: [heads, N].
__global__ void __launch_bounds__(Br)
    attention(int N, bool causal, const float4* Q, const float4* K, const float4* V, float4* O, float* m, float* l) {
  __shared__ float4 K_smem[Bc][d / 4], V_smem[Bc][d / 4];
  const size_t head = size_t(blockIdx.x) * N;

  for (int col0 = 0; col0 < N; col0 += Bc) {
    for (int e = threadIdx.x; e < Bc * d / 4; e += Br) {
      const int row = e / (d / 4), c = e % (d / 4);
      const bool exists = col0 + row < N;
      K_smem[row][c] = exists ? K[(head + col0 + row) * (d / 4) + c] : float4{};
      V_smem[row][c] = exists ? V[(head + col0 + row) * (d / 4) + c] : float4{};  // P = 0 times NaN would be NaN
    }
    __syncthreads();  // read after write: each thread reads all of K_j and V_j

    for (int i = threadIdx.x; i < N; i += Br) {      // this thread's row of each Q_i
      const int keys = (causal ? i + 1 : N) - col0;  // that the row sees, from the first of this tile on
      if (keys <= 0) continue;
      const float4* const q = Q + (head + i) * (d / 4);
      float4* const o = O + (head + i) * (d / 4);

      // q and o are read and written in HBM directly: neighbouring threads touch rows 256 bytes apart. 2_tiled.cuh stages both
      // in shared memory. The loops over c stay loops: unrolled, each would be 4096 multiply-adds of code.
      float S[Bc] = {};
#pragma unroll 1
      for (int c = 0; c < d / 4; ++c) {
        const float4 four = q[c];
        for (int j = 0; j < Bc; ++j) S[j] += dot(four, K_smem[j][c]);
      }
      float m_tile = -INFINITY, l_tile = 0.0f;
      for (int j = 0; j < Bc; ++j) {
        S[j] = j < keys ? S[j] / sqrtf(d) : -INFINITY;
        m_tile = fmaxf(m_tile, S[j]);
      }
      for (int j = 0; j < Bc; ++j) {
        S[j] = expf(S[j] - m_tile);  // P
        l_tile += S[j];
      }

      const bool first = col0 == 0;  // line 2 of Algorithm 1: O = 0, l = 0, m = -inf
      const float m_old = first ? -INFINITY : m[head + i], l_old = first ? 0.0f : l[head + i];
      const float m_new = fmaxf(m_old, m_tile);
      const float l_new = l_old * expf(m_old - m_new) + l_tile * expf(m_tile - m_new);
      const float old = l_old * expf(m_old - m_new) / l_new, tile = expf(m_tile - m_new) / l_new;  // weights of O_i and P V_j
#pragma unroll 1
      for (int c = 0; c < d / 4; ++c) {
        float4 sum = {};
        for (int j = 0; j < Bc; ++j) {
          const float4 v = V_smem[j][c];
          sum.x += S[j] * v.x;
          sum.y += S[j] * v.y;
          sum.z += S[j] * v.z;
          sum.w += S[j] * v.w;
        }
        const float4 before = first ? float4{} : o[c];
        o[c] = {old * before.x + tile * sum.x, old * before.y + tile * sum.y, old * before.z + tile * sum.z,
                old * before.w + tile * sum.w};
      }
      m[head + i] = m_new;
      l[head + i] = l_new;
    }
    __syncthreads();  // write after read: the next K_j and V_j overwrite what slower threads still read
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
  float *m, *l;
  for (float** array : {&m, &l}) check(cudaMalloc(array, size / d * sizeof(float)));

  cudaEvent_t begin, end;
  for (cudaEvent_t* event : {&begin, &end}) check(cudaEventCreate(event));
  std::vector<float> ms(runs + 1);  // the first run is a warm-up
  for (float& time : ms) {
    check(cudaEventRecord(begin));
    attention<<<dim3(heads), dim3(Br)>>>(N, causal, Q, K, V, O, m, l);
    check(cudaGetLastError());
    check(cudaEventRecord(end));
    check(cudaEventSynchronize(end));
    check(cudaEventElapsedTime(&time, begin, end));
  }
  check(cudaMemcpy(host[3].data(), O, size * sizeof(float), cudaMemcpyDeviceToHost));

  // Sums of 64 and of N fp32 numbers of about 1, with rounding errors of 6e-8, are accurate to 2e-6.
  const double tolerance = 1e-5;
  const double error = largest_error(N, causal, host);
  std::printf("FlashAttention-1 on %s: N = %d, %d heads, d = %d%s\n", gpu.name, N, heads, d, causal ? ", causal" : "");
  std::printf("largest error %.2g, tolerance %.2g: %s\n", error, tolerance, error <= tolerance ? "ok" : "WRONG");
  std::sort(ms.begin() + 1, ms.end());
  const double median = ms[(runs + 1) / 2], flop = 4.0 * heads * N * (causal ? (N + 1) / 2.0 : N) * d;  // two products
  if (runs > 0) std::printf("median of %d runs: %.3f ms, %.1f TFLOP/s\n", runs, median, flop / median / 1e9);
  return error <= tolerance ? 0 : 1;
}
