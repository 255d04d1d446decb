// FlashAttention-2 on tensor cores in one file: fp16 inputs and output, fp32 sums, products by mma.sync.
//
//   for each tile i of Q, a block per tile and a warp per 16 rows:   O = 0, l = 0, m = -inf
//     for each tile j of K and V:
//       S = Q_i K_j^T                                            [16, d] x [d, Bc] per warp
//       m_new = max(m, rowmax S),   alpha = e^((m - m_new) / sqrt(d))
//       P = e^((S - m_new) / sqrt(d)),   l = alpha l + rowsum P
//       O = alpha O + P V_j                                      [16, Bc] x [Bc, d] per warp
//     O_i = O / l
//
// Q, K, V and O are [heads, N, d], d = 64. K_j and V_j are in shared memory; Q, S, P and O in registers, as fragments of
// m16n8k16 (PTX ISA, "Matrix fragments"). With g = lane / 4 and t = lane % 4, two fp16 numbers per register of A and B:
//
//   A [16, 16]: a[0] = A(g, 2t..2t+1), a[1] = A(g+8, 2t..), a[2] = A(g, 2t+8..), a[3] = A(g+8, 2t+8..)
//   B [16, 8]:  b0 = B(2t..2t+1, g), b1 = B(2t+8..2t+9, g)      C [16, 8]: c[0..1] = C(g, 2t..), c[2..3] = C(g+8, 2t..)
//
//   nvcc -O3 -arch=native standalone.cu && ./a.out [N [heads [runs]]] [causal]        (sm_75 or newer)
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

constexpr int d = 64, Br = 64, Bc = 64, THREADS = Br / 16 * 32;  // rows of a tile of Q: Br; of a tile of K and V: Bc

/// Rows of 8 chunks of 8 numbers (16 bytes), and a chunk of padding: neighbouring rows then begin in different banks.
using Tile = uint4[Bc][d / 8 + 1];

// ---- PTX: instructions that CUDA C++ has no function for
/// Loads four 8 x 8 matrices and transposes them: lane i passes the address of row i % 8 of matrix i / 8, and r[m] becomes
/// M(2t..2t+1, g) of matrix m.
__device__ void ldmatrix_x4_trans(unsigned (&r)[4], const uint4* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(unsigned(__cvta_generic_to_shared(row)))
               : "memory");
}
/// C += A B, [16, 16] x [16, 8], by the whole warp.
__device__ void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else  // Turing: two products of half the depth
  for (int k = 0; k < 2; ++k)
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[2 * k]), "r"(a[2 * k + 1]), "r"(k == 0 ? b0 : b1));
#endif
}
// ----
/// Two numbers as fp16 in one register, `low` in the lower half.
__device__ unsigned pack(float low, float high) {
  const half2 both = __floats2half2_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&both);
}

/// Rows row0, row0 + 1, ... of M, [N, d], to shared memory; zeros beyond the last row, since 0 times NaN is NaN.
__device__ void load_tile(Tile& tile, const uint4* M, int row0, int N) {
  for (int e = threadIdx.x; e < Bc * d / 8; e += THREADS) {
    const int row = e / (d / 8), c = e % (d / 8);
    tile[row][c] = row0 + row < N ? M[(row0 + row) * (d / 8) + c] : uint4{};
  }
}

/// Q, K, V, O: [heads, N, d], 8 numbers each.
__global__ void __launch_bounds__(THREADS)
    attention(int N, bool causal, const uint4* Q, const uint4* K, const uint4* V, uint4* O) {
  __shared__ Tile K_smem, V_smem;
  const size_t head = size_t(blockIdx.y) * N * (d / 8);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int row0 = blockIdx.x * Br, warp_row0 = row0 + threadIdx.x / 32 * 16;  // this lane has rows warp_row0 + g and + g + 8

  const unsigned* const Q_pairs = reinterpret_cast<const unsigned*>(Q + head);
  unsigned Q_reg[d / 16][4];  // A fragments, loaded once
  for (int e = 0; e < d / 4; ++e) {
    const int i = warp_row0 + g + e % 2 * 8, pair = e / 4 * 8 + e % 4 / 2 * 4 + t;
    Q_reg[e / 4][e % 4] = i < N ? Q_pairs[i * (d / 2) + pair] : 0u;
  }
  float O_reg[d / 8][4] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {};  // l: over this lane's columns only

  for (int col0 = 0; col0 < (causal ? min(N, row0 + Br) : N); col0 += Bc) {
    load_tile(K_smem, K + head, col0, N);
    load_tile(V_smem, V + head, col0, N);
    // Read after write: a warp reads all of K_j and V_j.
    __syncthreads();

    // S = Q_i K_j^T. Rows of K are columns of the right operand, so both numbers of a register are neighbours in memory.
    float S[Bc / 8][4] = {};
    for (int n = 0; n < Bc / 8; ++n) {
      const unsigned* const key = reinterpret_cast<const unsigned*>(K_smem[8 * n + g]);
      for (int k = 0; k < d / 16; ++k) mma_m16n8k16(S[n], Q_reg[k], key[8 * k + t], key[8 * k + t + 4]);
    }
    if (col0 + Bc > N || (causal && col0 + Bc - 1 > warp_row0)) {  // some key of the tile is masked for some row
      for (int e = 0; e < Bc / 2; ++e) {
        const int i = warp_row0 + g + e % 4 / 2 * 8, j = col0 + e / 4 * 8 + 2 * t + e % 2;
        if (j >= N || (causal && j > i)) S[e / 4][e % 4] = -INFINITY;
      }
    }

    // The softmax of both rows so far, in powers of 2: e^(s / sqrt(d)) = 2^(factor s). Four lanes share a row.
    const float factor = 1.44269504f / sqrtf(d);
    for (int h = 0; h < 2; ++h) {
      float m_new = m[h];
      for (int n = 0; n < Bc / 8; ++n) m_new = fmaxf(m_new, fmaxf(S[n][2 * h], S[n][2 * h + 1]));
      for (int other = 1; other < 4; other *= 2) m_new = fmaxf(m_new, __shfl_xor_sync(0xFFFFFFFFu, m_new, other));
      const float alpha = exp2f(factor * (m[h] - m_new));  // not NaN: every row sees key 0, hence m_new > -inf
      m[h] = m_new;
      l[h] *= alpha;
      for (int e = 0; e < Bc / 4; ++e) {
        float& p = S[e / 2][2 * h + e % 2];
        p = exp2f(factor * p - factor * m_new);
        l[h] += p;
      }
      for (int e = 0; e < d / 4; ++e) O_reg[e / 2][2 * h + e % 2] *= alpha;
    }

    // O = O + P V_j. C fragments of two neighbouring 16 x 8 blocks of P are, in fp16, the A fragment of the 16 x 16 block.
    for (int k = 0; k < Bc / 16; ++k) {
      const unsigned P[4] = {pack(S[2 * k][0], S[2 * k][1]), pack(S[2 * k][2], S[2 * k][3]),
                             pack(S[2 * k + 1][0], S[2 * k + 1][1]), pack(S[2 * k + 1][2], S[2 * k + 1][3])};
      for (int n = 0; n < d / 8; n += 2) {
        unsigned b[4];
        ldmatrix_x4_trans(b, &V_smem[16 * k + lane % 16][n + lane / 16]);
        mma_m16n8k16(O_reg[n], P, b[0], b[1]);
        mma_m16n8k16(O_reg[n + 1], P, b[2], b[3]);
      }
    }
    // Write after read: the next K_j and V_j overwrite what slower warps still read.
    __syncthreads();
  }

  for (int h = 0; h < 2; ++h) {
    for (int other = 1; other < 4; other *= 2) l[h] += __shfl_xor_sync(0xFFFFFFFFu, l[h], other);
    const int i = warp_row0 + g + 8 * h;
    if (i >= N) continue;
    unsigned* const O_pairs = reinterpret_cast<unsigned*>(O + head + i * (d / 8));
    for (int n = 0; n < d / 8; ++n) O_pairs[4 * n + t] = pack(O_reg[n][2 * h] / l[h], O_reg[n][2 * h + 1] / l[h]);
  }
}

static void check(cudaError_t error, int exit_code = 1, int line = __builtin_LINE()) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s:%d: %s\n", __FILE__, line, cudaGetErrorString(error));
  std::exit(exit_code);
}

/// The largest error of O against double precision, over all rows if they are few, else over 1000; NaN if an element is NaN.
static double largest_error(int N, bool causal, const std::vector<half> (&host)[4]) {
  const auto& [Q, K, V, O] = host;
  const size_t rows = O.size() / d;
  double largest = 0.0;
  for (size_t sample = 0; sample < std::min<size_t>(rows, 1000); ++sample) {
    const size_t row = sample * 2654435761u % rows;  // a prime: no row twice
    const size_t first_key = row / N * N, keys = causal ? row % N + 1 : N;
    double l = 0.0, o[d] = {};
    for (size_t j = first_key; j < first_key + keys; ++j) {
      double qk = 0.0;
      for (int c = 0; c < d; ++c) qk += double(float(Q[row * d + c])) * double(float(K[j * d + c]));
      const double p = std::exp(qk / std::sqrt(d));
      l += p;
      for (int c = 0; c < d; ++c) o[c] += p * double(float(V[j * d + c]));
    }
    for (int c = 0; c < d; ++c) {
      const double error = std::abs(double(float(O[row * d + c])) - o[c] / l);
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
  std::vector<half> host[4];  // Q, K, V and O: where no thread writes O, it stays wrong
  uint4* device[4];
  std::minstd_rand random;
  std::uniform_real_distribution<float> uniform(-2.0f, 2.0f);
  for (int a = 0; a < 4; ++a) {
    for (size_t i = 0; i < size; ++i) host[a].push_back(uniform(random));
    check(cudaMalloc(&device[a], size * sizeof(half)));
    check(cudaMemcpy(device[a], host[a].data(), size * sizeof(half), cudaMemcpyHostToDevice));
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
  check(cudaMemcpy(host[3].data(), O, size * sizeof(half), cudaMemcpyDeviceToHost));
  // P and O are rounded to fp16, by 2^-11 of themselves at most, and no |V| exceeds 2.
  const double tolerance = 2e-3, error = largest_error(N, causal, host);
  std::printf("FlashAttention-2, fp16, on %s: N = %d, %d heads, d = %d%s\n", gpu.name, N, heads, d, causal ? ", causal" : "");
  std::printf("largest error %.2g, tolerance %.2g: %s\n", error, tolerance, error <= tolerance ? "ok" : "WRONG");
  std::sort(ms.begin() + 1, ms.end());
  const double median = ms[(runs + 1) / 2], flop = 4.0 * heads * N * (causal ? (N + 1) / 2.0 : N) * d;  // two products
  if (runs > 0) std::printf("median of %d runs: %.3f ms, %.1f TFLOP/s\n", runs, median, flop / median / 1e9);
  return error <= tolerance ? 0 : 1;
}
