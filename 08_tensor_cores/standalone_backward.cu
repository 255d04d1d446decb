// FlashAttention-2, backward, on tensor cores in one file: fp16 in and out, products by mma.sync.
//
//   L_i = ln sum_j e^S_ij, saved by the forward pass
//   D = rowsum(dO o O),   dQ = 0                  in a kernel before;  o: element by element
//   for every tile j of K and V, one block per tile:   dK_j = 0,   dV_j = 0
//     for every tile i of Q:
//       P^T = e^(K_j Q_i^T / sqrt(d) - L_i)     [Bc, d] x [d, Br]    causal: P_ij = 0 if j > i
//       dP^T = V_j dO_i^T                       [Bc, d] x [d, Br]
//       dS^T = P^T o (dP^T - D_i)
//       dV_j += P^T dO_i                        [Bc, Br] x [Br, d]
//       dK_j += dS^T Q_i / sqrt(d)              [Bc, Br] x [Br, d]
//       dQ_i += dS K_j / sqrt(d)                [Br, Bc] x [Bc, d]   atomically: all blocks add
//
// All matrices are [heads, N, d] in fp16, row after row, with Br = Bc = d = 64. A warp has 16 rows
// of a product: keys, or queries of dQ, in the same fragments as standalone.cu. Scores are
// transposed, so that P and dS are left operands of the next products. dQ is summed in fp32.
//
//   nvcc -O3 -arch=native standalone_backward.cu && ./a.out [N [heads [runs]]] [causal]
//   ../common/run standalone_backward.cu -- 100 2 0       and again with `causal` at its end
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

constexpr int d = 64;
constexpr int Br = d, Bc = d;  // rows of a tile of Q, and of K and V: 16 per warp
constexpr int WARPS = Bc / 16, THREADS = 32 * WARPS;
using Tile = uint4[Br][d / 8 + 1];      // 16 bytes after each row: rows begin in different banks
using Fragments = unsigned[d / 16][4];  // of an operand A, [16, d] per warp
using Sums = float[d / 8][4];           // of C, [16, d] per warp

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
/// Rows row0, row0 + 1, ... of M, [N, d], to shared memory; beyond M zeros, as 0 times NaN is NaN.
__device__ void load_tile(Tile& tile, const half* M, int row0, int N) {
  for (int e = threadIdx.x; e < Br * d / 8; e += THREADS) {
    const int row = e / (d / 8), c = e % (d / 8);
    const int eight = (row0 + row) * (d / 8) + c;
    tile[row][c] = row0 + row < N ? reinterpret_cast<const uint4*>(M)[eight] : uint4{};
  }
}

/// C += A M or A M^T, by a warp: [16, d] x [d, d].
template <bool Transposed>
__device__ void add_product(Sums& C, const Fragments& A, const Tile& M) {
  const int lane = threadIdx.x % 32;
  for (int k = 0; k < d / 16; ++k)
    for (int n = 0; n < d / 8; n += 2) {
      unsigned b[4];
      if (Transposed)  // rows of M are columns of the right operand
        ldmatrix_x4(b, &M[8 * n + lane / 16 * 8 + lane % 8][2 * k + lane / 8 % 2]);
      else
        ldmatrix_x4_trans(b, &M[16 * k + lane % 16][n + lane / 16]);
      mma_m16n8k16(C[n], A[k], b[0], b[1]);
      mma_m16n8k16(C[n + 1], A[k], b[2], b[3]);
    }
}
/// Sums as the operand of another product: two fragments C, side by side and in fp16, are one of A.
__device__ void pack(Fragments& A, const Sums& C) {
  for (int e = 0; e < d / 4; ++e) {
    const half2 two = __floats2half2_rn(C[e / 2][e % 2 * 2], C[e / 2][e % 2 * 2 + 1]);
    A[e / 4][e % 4] = *reinterpret_cast<const unsigned*>(&two);
  }
}

/// D = rowsum(dO o O), and dQ = 0. A warp per row: lane x has the columns x and x + 32.
__global__ void prepare(unsigned rows, const half* O, const half* dO, float* D, float* dQ) {
  const size_t row = size_t(blockIdx.x) * WARPS + threadIdx.x / 32;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int c = threadIdx.x % 32; c < d; c += 32) {
    sum += float(dO[row * d + c]) * float(O[row * d + c]);
    dQ[row * d + c] = 0.0f;
  }
  for (int other = 1; other < 32; other *= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, other);
  if (threadIdx.x % 32 == 0) D[row] = sum;
}

__global__ void __launch_bounds__(THREADS)
    fa2_backward(int N, bool causal, const half* Q, const half* K, const half* V, const half* dO,
                 const float* L, const float* D, float* dQ, half* dK, half* dV) {
  __shared__ Tile K_smem, V_smem, Q_smem, dO_smem, dS_smem;  // dS transposed: [keys, queries]
  const size_t head_row0 = size_t(blockIdx.y) * N;           // of this head
  const int key0 = blockIdx.x * Bc, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int y = threadIdx.x / 32 * 16;  // the warp's first row in a product

  load_tile(K_smem, K + head_row0 * d, key0, N);
  load_tile(V_smem, V + head_row0 * d, key0, N);
  Sums dK_reg = {}, dV_reg = {};

  for (int query0 = causal ? key0 : 0; query0 < N; query0 += Br) {
    load_tile(Q_smem, Q + head_row0 * d, query0, N);
    load_tile(dO_smem, dO + head_row0 * d, query0, N);
    // Read after write: each warp reads rows of all four tiles that others have loaded.
    // Write after read: the next dS overwrites the last one.
    __syncthreads();

    // P^T and dS^T: this thread's keys j, and queries i.
    Fragments A;
    Sums S = {}, dP = {};
    for (int k = 0; k < d / 16; ++k) ldmatrix_x4(A[k], &K_smem[y + lane % 16][2 * k + lane / 16]);
    add_product<true>(S, A, Q_smem);
    for (int k = 0; k < d / 16; ++k) ldmatrix_x4(A[k], &V_smem[y + lane % 16][2 * k + lane / 16]);
    add_product<true>(dP, A, dO_smem);
    for (int e = 0; e < Br / 2; ++e) {
      const int j = key0 + y + g + e % 4 / 2 * 8, i = query0 + e / 4 * 8 + 2 * t + e % 2;
      const bool visible = i < N && j < N && (!causal || j <= i);
      float &s = S[e / 4][e % 4], &dp = dP[e / 4][e % 4];  // which become P and dS
      s = visible ? expf(s / sqrtf(d) - L[head_row0 + i]) : 0.0f;
      dp = visible ? s * (dp - D[head_row0 + i]) : 0.0f;
    }
    pack(A, S);
    add_product<false>(dV_reg, A, dO_smem);
    pack(A, dP);
    add_product<false>(dK_reg, A, Q_smem);
    for (int e = 0; e < Br / 4; ++e)
      reinterpret_cast<unsigned*>(dS_smem[y + g + e % 2 * 8])[e / 2 * 4 + t] = A[e / 4][e % 4];
    // Read after write: each warp reads its queries of dS, from the keys of all warps.
    // Write after read: the next Q_i and dO_i overwrite these.
    __syncthreads();

    // dQ_i += dS K_j / sqrt(d)
    Sums dQ_reg = {};
    for (int k = 0; k < Bc / 16; ++k)
      ldmatrix_x4_trans(A[k], &dS_smem[16 * k + lane / 16 * 8 + lane % 8][y / 8 + lane / 8 % 2]);
    add_product<false>(dQ_reg, A, K_smem);
    for (int e = 0; e < d / 2; ++e) {
      const int i = query0 + y + g + e % 4 / 2 * 8, c = e / 4 * 8 + 2 * t + e % 2;
      if (i < N) atomicAdd(&dQ[(head_row0 + i) * d + c], dQ_reg[e / 4][e % 4] / sqrtf(d));
    }
  }
  for (int e = 0; e < d / 2; ++e) {
    const int j = key0 + y + g + e % 4 / 2 * 8, c = e / 4 * 8 + 2 * t + e % 2;
    if (j >= N) continue;
    dK[(head_row0 + j) * d + c] = dK_reg[e / 4][e % 4] / sqrtf(d);
    dV[(head_row0 + j) * d + c] = dV_reg[e / 4][e % 4];
  }
}

__global__ void to_fp16(const float* from, half* to) {
  to[size_t(blockIdx.x) * d + threadIdx.x] = from[size_t(blockIdx.x) * d + threadIdx.x];
}

static void check(cudaError_t error, int exit_code = 1) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(exit_code);
}

using Number = half;  // of all matrices
constexpr char name[] = "FlashAttention-2, backward, fp16";
constexpr double tolerance = 2e-2;  // P, dS and the gradients are rounded to fp16, by 2^-11 at most

/// Computes dQ, dK and dV; all pointers are to HBM.
static void backward(int N, int heads, bool causal, const half* Q, const half* K, const half* V,
                     const half* O, const half* dO, const float* L, half* dQ, half* dK, half* dV) {
  static float *D = nullptr, *sum = nullptr;  // [heads, N] and dQ in fp32, for the first call's N
  const unsigned rows = unsigned(heads) * N, tiles = (N + Bc - 1) / Bc;
  if (D == nullptr) check(cudaMalloc(&D, sizeof(float) * rows), 3);
  if (sum == nullptr) check(cudaMalloc(&sum, sizeof(float) * rows * d), 3);
  prepare<<<dim3((rows + WARPS - 1) / WARPS), dim3(THREADS)>>>(rows, O, dO, D, sum);
  fa2_backward<<<dim3(tiles, heads), dim3(THREADS)>>>(N, causal, Q, K, V, dO, L, D, sum, dK, dV);
  to_fp16<<<dim3(rows), dim3(d)>>>(sum, dQ);
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
