// FlashAttention-2 on tensor cores in one file: fp16 in and out, fp32 sums, products by mma.sync.
//
//   for every tile i of Q, one block per tile:   O = 0,   m = -inf,   l = 0
//     for every tile j of K and V:
//       S = Q_i K_j^T / sqrt(d)       [Br, d] x [d, Bc]    causal: S_ij = -inf if j > i
//       m_new = max(m, rowmax S),   alpha = e^(m - m_new)
//       P = e^(S - m_new),   l = alpha l + rowsum P
//       O = alpha O + P V_j           [Br, Bc] x [Bc, d]
//     O_i = O / l
//
// Q, K, V and O are [heads, N, d] in fp16, row after row, with d = 64. A warp has 16 rows of S, P
// and O in registers, as fragments of mma.m16n8k16, C += A B (PTX ISA, "Matrix fragments"). With
// g = lane / 4 and t = lane % 4, a lane has, two fp16 numbers per register of A and B,
//   A [16, 16]:  a[0] = A(g, 2t..2t+1), a[2] = A(g, 2t+8..2t+9); a[1], a[3] the same of row g + 8
//   B [16, 8]:   b0 = B(2t..2t+1, g), b1 = B(2t+8..2t+9, g)
//   C [16, 8]:   c[0..1] = C(g, 2t..2t+1); c[2..3] the same of row g + 8
//
//   nvcc -O3 -arch=native standalone.cu && ./a.out [N [heads [runs]]] [causal]      sm_75 or newer
//   ../common/run standalone.cu -- 100 2 0       and again with `causal` at its end
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

constexpr int d = 64;
constexpr int Br = 64, Bc = 64;  // rows of a tile of Q, 16 per warp; of a tile of K and V
constexpr int THREADS = Br / 16 * 32;
constexpr int PAD = 1;  // 16 bytes after each row: the 8 that ldmatrix reads are in different banks

// ---- PTX: instructions that CUDA C++ has no function for
/// Four 8 x 8 matrices M from shared memory: lane i points to row i % 8 of matrix i / 8, and gets
/// r[m] = M(g, 2t..2t+1) of matrix m.
__device__ void ldmatrix_x4(unsigned (&r)[4], const uint4* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(unsigned(__cvta_generic_to_shared(row)))
               : "memory");
}
/// The same, transposed: r[m] = M(2t..2t+1, g).
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
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else  // Turing: two products of half the depth
  for (int k = 0; k < 2; ++k)
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
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

/// Rows row0, row0 + 1, ... of M, [N, d], to shared memory; beyond M zeros, as 0 times NaN is NaN.
template <int Rows, int Cols>
__device__ void load_tile(uint4 (&tile)[Rows][Cols], const uint4* M, int row0, int N) {
  for (int e = threadIdx.x; e < Rows * d / 8; e += THREADS) {
    const int row = e / (d / 8), c = e % (d / 8);
    tile[row][c] = row0 + row < N ? M[(row0 + row) * (d / 8) + c] : uint4{};
  }
}

/// Q, K, V, O: eight numbers per uint4, which one instruction loads.
__global__ void __launch_bounds__(THREADS)
    fa2_forward(int N, bool causal, const uint4* Q, const uint4* K, const uint4* V, uint4* O) {
  __shared__ uint4 Q_smem[Br][d / 8 + PAD], K_smem[Bc][d / 8 + PAD], V_smem[Bc][d / 8 + PAD];
  const size_t offset = size_t(blockIdx.y) * N * (d / 8);  // where this head begins
  const int query0 = blockIdx.x * Br, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane / 4, t = lane % 4;  // this thread's columns: 2 t and 2 t + 1 of each 8
  const int row = 16 * warp + g;         // its rows: row and row + 8

  load_tile(Q_smem, Q + offset, query0, N);
  float O_reg[d / 8][4] = {}, m[2], l[2] = {};  // l: of this thread's columns alone
  for (int r = 0; r < 2; ++r) m[r] = -INFINITY;

  for (int key0 = 0; key0 < (causal ? min(N, query0 + Br) : N); key0 += Bc) {
    load_tile(K_smem, K + offset, key0, N);
    load_tile(V_smem, V + offset, key0, N);
    // Read after write: each thread reads rows of Q, K and V that others have loaded.
    __syncthreads();

    // S = Q_i K_j^T. Rows of K_j are columns of B, so that its fragments need no transposition.
    float S[Bc / 8][4] = {};
    for (int k = 0; k < d / 16; ++k) {
      unsigned a[4], b[4];
      ldmatrix_x4(a, &Q_smem[16 * warp + lane % 16][2 * k + lane / 16]);
      for (int n = 0; n < Bc / 8; n += 2) {
        // Keys 8 n.., columns 16 k.. and 16 k + 8..; keys 8 n + 8.., the same: b[0] to b[3].
        ldmatrix_x4(b, &K_smem[8 * n + lane / 16 * 8 + lane % 8][2 * k + lane / 8 % 2]);
        mma_m16n8k16(S[n], a, b[0], b[1]);
        mma_m16n8k16(S[n + 1], a, b[2], b[3]);
      }
    }

    // The softmax, in powers of 2: e^(s / sqrt(d)) = 2^(factor s). 4 lanes share a row.
    const float factor = 1.44269504f / sqrtf(d);          // log2(e) / sqrt(d)
    if (key0 + Bc > N || (causal && key0 + Bc > query0))  // in other tiles every key is visible
      for (int e = 0; e < Bc / 2; ++e) {
        const int i = query0 + row + e % 4 / 2 * 8, j = key0 + e / 4 * 8 + 2 * t + e % 2;
        if (j >= N || (causal && j > i)) S[e / 4][e % 4] = -INFINITY;
      }
    for (int r = 0; r < 2; ++r) {
      float m_new = m[r];
      for (int c = 0; c < Bc / 4; ++c) m_new = fmaxf(m_new, S[c / 2][2 * r + c % 2]);
      for (int other = 1; other < 4; other *= 2)
        m_new = fmaxf(m_new, __shfl_xor_sync(0xFFFFFFFFu, m_new, other));
      const float alpha = exp2f(factor * (m[r] - m_new));  // m_new > -inf: every row sees key 0
      m[r] = m_new;
      l[r] *= alpha;
      for (int c = 0; c < d / 4; ++c) O_reg[c / 2][2 * r + c % 2] *= alpha;
      for (int c = 0; c < Bc / 4; ++c) {
        float& p = S[c / 2][2 * r + c % 2];  // p replaces s
        p = exp2f(factor * p - factor * m_new);
        l[r] += p;
      }
    }

    // O += P V_j. Two fragments C of P, side by side and packed, are a fragment A.
    for (int k = 0; k < Bc / 16; ++k) {
      unsigned a[4], b[4];
      for (int e = 0; e < 4; ++e)
        a[e] = pack(S[2 * k + e / 2][e % 2 * 2], S[2 * k + e / 2][e % 2 * 2 + 1]);
      for (int n = 0; n < d / 8; n += 2) {
        ldmatrix_x4_trans(b, &V_smem[16 * k + lane % 16][n + lane / 16]);
        mma_m16n8k16(O_reg[n], a, b[0], b[1]);
        mma_m16n8k16(O_reg[n + 1], a, b[2], b[3]);
      }
    }
    // Write after read: the next K_j and V_j overwrite what slower threads still read.
    __syncthreads();
  }

  for (int r = 0; r < 2; ++r) {
    for (int other = 1; other < 4; other *= 2) l[r] += __shfl_xor_sync(0xFFFFFFFFu, l[r], other);
    const int i = query0 + row + 8 * r;
    if (i >= N) continue;
    unsigned* const row = reinterpret_cast<unsigned*>(O + offset + i * (d / 8));
    for (int n = 0; n < d / 8; ++n)
      row[4 * n + t] = pack(O_reg[n][2 * r] / l[r], O_reg[n][2 * r + 1] / l[r]);
  }
}

static void check(cudaError_t error, int exit_code = 1) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(exit_code);
}

using Number = half;  // of Q, K, V and O
constexpr char name[] = "FlashAttention-2, fp16";
constexpr double tolerance = 2e-3;  // P and O are rounded to fp16, by 2^-11 at most; |V| <= 2

/// Computes O; all pointers are to HBM.
static void attention(int N, int heads, bool causal, const half* Q, const half* K, const half* V,
                      half* O) {
  fa2_forward<<<dim3((N + Br - 1) / Br, heads), dim3(THREADS)>>>(
      N, causal, (const uint4*)Q, (const uint4*)K, (const uint4*)V, (uint4*)O);
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
