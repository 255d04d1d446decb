// FlashAttention-2 on Hopper in one file: copies by TMA, products by wgmma, warps with two roles.
//
//   for every tile i of Q, one block per tile:   O = 0,   m = -inf,   l = 0
//     for every tile j of K and V:
//       S = Q_i K_j^T / sqrt(d)       [Br, d] x [d, Bc]    causal: S_ij = -inf if j > i
//       m_new = max(m, rowmax S),   alpha = e^(m - m_new)
//       P = e^(S - m_new),   l = alpha l + rowsum P
//       O = alpha O + P V_j           [Br, Bc] x [Bc, d]
//     O_i = O / l
//
// Q, K, V and O are [heads, N, d] in fp16, row after row, with d = 128. One thread of a block, its
// producer, has the TMA, a copy engine, load K_0, V_0, K_1, ... into a ring of buffers. Two
// warpgroups of 128 threads, its consumers, have 64 rows of Q, S, P and O each, in registers. wgmma
// multiplies Q and P by tiles in shared memory, asynchronously: P V runs during the next softmax.
// A buffer has two mbarriers. A phase of `full` ends when the TMA has written all bytes, a phase of
// `empty` when 8 consumer warps have arrived. Phase -1, before the first, counts as ended.
//
//   nvcc -O3 -arch=compute_90a -code=sm_90a standalone_hopper.cu && ./a.out
//   ../common/run standalone_hopper.cu -- 100 2 0       and again with `causal` at its end
#include <cuda.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

constexpr int d = 128, Br = 128, Bc = 128;  // Br: rows of Q, 64 per consumer; Bc: of K and V
constexpr int BUFFERS = 4, THREADS = 3 * 128;

/// [Bc, d] as two panels of 64 columns. Chunk c of 16 bytes in row r of a panel is at c ^ r % 8,
/// where the TMA writes it and wgmma reads it without bank conflicts.
using Tile = half[2][Bc][64];
using Mbarrier = unsigned long long;
struct Shared {
  Tile tiles[BUFFERS];
  Mbarrier full[BUFFERS], empty[BUFFERS];
};

__device__ unsigned address(const void* p) { return unsigned(__cvta_generic_to_shared(p)); }

/// Waits until this phase of the mbarrier has ended.
__device__ void wait(Mbarrier& mbarrier, int phase) {
  asm volatile(
      "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra again; }" ::"r"(address(&mbarrier)),
      "r"(phase & 1)
      : "memory");
}

/// Has the TMA copy rows of a head, zeros beyond row N: a phase of `full` waits for all bytes.
__device__ void load(Tile& tile, const CUtensorMap& map, int row0, int head, Mbarrier& full) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&full)),
               "n"(sizeof(Tile))
               : "memory");
  for (int panel = 0; panel < 2; ++panel)
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(address(tile[panel])),
        "l"(&map), "r"(64 * panel), "r"(row0), "r"(head), "r"(address(&full))
        : "memory");
}

/// Starts C = A B or, to add, C += A B; B is tile n or, Transposed, its transpose. A warp has 16
/// rows of A and C, in the fragments of standalone.cu, not to be touched before the product ends.
/// No "memory" here: volatile asm keeps its order, and nothing but asm touches tiles.
template <bool Transposed>
__device__ void start(float (&C)[64], const unsigned (&A)[8][4], Shared& s, int n, bool add) {
  // Read after write: A and C are in their registers; ptxas guards what nvcc puts there later.
  asm volatile("wgmma.fence.sync.aligned;");
  const Tile& tile = s.tiles[n % BUFFERS];
  for (int k = 0; k < 8; ++k) {  // [64, 16] x [16, 128]
    const half* const B_k = Transposed ? &tile[k / 4][0][k % 4 * 16] : &tile[0][16 * k][0];
    const auto descriptor = address(B_k) / 16 |      // the first row, in 16 bytes
                            Bc * 128 / 16 << 16 |    // to the next panel
                            8 * 128 / 16ull << 32 |  // to the next 8 rows
                            1ull << 62;              // swizzle: as in Tile
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,"
        "%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,"
        "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, {%64, %65, %66, %67}, %68, p, 1, 1, %70; }"
        : "+f"(C[0]), "+f"(C[1]), "+f"(C[2]), "+f"(C[3]), "+f"(C[4]), "+f"(C[5]), "+f"(C[6]),
          "+f"(C[7]), "+f"(C[8]), "+f"(C[9]), "+f"(C[10]), "+f"(C[11]), "+f"(C[12]), "+f"(C[13]),
          "+f"(C[14]), "+f"(C[15]), "+f"(C[16]), "+f"(C[17]), "+f"(C[18]), "+f"(C[19]), "+f"(C[20]),
          "+f"(C[21]), "+f"(C[22]), "+f"(C[23]), "+f"(C[24]), "+f"(C[25]), "+f"(C[26]), "+f"(C[27]),
          "+f"(C[28]), "+f"(C[29]), "+f"(C[30]), "+f"(C[31]), "+f"(C[32]), "+f"(C[33]), "+f"(C[34]),
          "+f"(C[35]), "+f"(C[36]), "+f"(C[37]), "+f"(C[38]), "+f"(C[39]), "+f"(C[40]), "+f"(C[41]),
          "+f"(C[42]), "+f"(C[43]), "+f"(C[44]), "+f"(C[45]), "+f"(C[46]), "+f"(C[47]), "+f"(C[48]),
          "+f"(C[49]), "+f"(C[50]), "+f"(C[51]), "+f"(C[52]), "+f"(C[53]), "+f"(C[54]), "+f"(C[55]),
          "+f"(C[56]), "+f"(C[57]), "+f"(C[58]), "+f"(C[59]), "+f"(C[60]), "+f"(C[61]), "+f"(C[62]),
          "+f"(C[63])
        : "r"(A[k][0]), "r"(A[k][1]), "r"(A[k][2]), "r"(A[k][3]), "l"(descriptor),
          "r"(int(k > 0 || add)), "n"(!Transposed));
  }
  asm volatile("wgmma.commit_group.sync.aligned;");
}

/// Waits for all products but the last `Newer`, C's with tile n among them. Releases n's buffer.
template <int Newer>
__device__ void finish_and_release(float (&C)[64], Shared& s, int n) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Newer));
  for (float& c : C) asm volatile("" : "+f"(c));  // for the compiler: it has changed
  // Write after read: all lanes have waited, so the warp has read its share of the tile.
  if (threadIdx.x % 32 == 0)
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(&s.empty[n % BUFFERS]))
                 : "memory");
}

__device__ float power_of_2(float x) {
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
  return x;
}

__global__ void __launch_bounds__(THREADS, 1)
    fa2_forward(int N, bool causal, const half* Q, const __grid_constant__ CUtensorMap K,
                const __grid_constant__ CUtensorMap V, half* O) {
  extern __shared__ __align__(1024) char memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory);
  const int row0 = (gridDim.x - 1 - blockIdx.x) * Br;  // if causal, the longest blocks first
  const int tiles = ((causal ? min(N, row0 + Br) : N) + Bc - 1) / Bc, head = blockIdx.y;
  if (const int n = threadIdx.x; n < BUFFERS) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&s.full[n])));
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" ::"r"(address(&s.empty[n])));
    asm volatile("fence.mbarrier_init.release.cluster;");  // for the TMA
  }
  // Read after write: all threads use the mbarriers.
  __syncthreads();

  // A thread starts with 65536 / 384 registers, in eights 168; 24 + 2 * 240 = 3 * 168.
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    for (int n = 0; n < 2 * tiles && threadIdx.x == 0; ++n) {  // thread 0 alone: the producer
      // Write after read: all consumers have read what is in the buffer.
      wait(s.empty[n % BUFFERS], n / BUFFERS - 1);
      load(s.tiles[n % BUFFERS], n % 2 == 0 ? K : V, n / 2 * Bc, head, s.full[n % BUFFERS]);
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int warp = threadIdx.x / 32 - 4, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int y = row0 + 16 * warp + g;  // this thread's rows: y and y + 8
  unsigned Q_reg[d / 16][4], P[Bc / 16][4];
  float S[Bc / 2], O_reg[d / 2] = {}, m[2] = {-INFINITY, -INFINITY}, l[2] = {}, alpha[2];
  for (int e = 0; e < d / 4; ++e) {
    const size_t i = y + e % 2 * 8, c = e / 4 * 16 + e % 4 / 2 * 8 + 2 * t;
    Q_reg[e / 4][e % 4] = i < N ? *(const unsigned*)&Q[(size_t(head) * N + i) * d + c] : 0u;
  }
  const auto softmax = [&](int j) {               // S of tile j becomes P, in the same registers
    const float factor = 1.44269504f / sqrtf(d);  // in powers of 2: e^(s / sqrt(d)) = 2^(factor s)
    if (j * Bc + Bc > N || (causal && j * Bc + Bc > row0))  // in other tiles all keys are visible
      for (int e = 0; e < Bc / 2; ++e) {
        const int row = y + e % 4 / 2 * 8, col = j * Bc + e / 4 * 8 + 2 * t + e % 2;
        if (col >= N || (causal && col > row)) S[e] = -INFINITY;
      }
    for (int r = 0; r < 2; ++r) {
      const float m_old = m[r];
      for (int e = 0; e < Bc / 2; ++e)
        if (e % 4 / 2 == r) m[r] = fmaxf(m[r], S[e]);
      for (int other = 1; other < 4; other *= 2)
        m[r] = fmaxf(m[r], __shfl_xor_sync(0xFFFFFFFFu, m[r], other));
      alpha[r] = power_of_2(factor * (m_old - m[r]));  // m > -inf: every row sees key 0
      l[r] *= alpha[r];
    }
    for (int e = 0; e < Bc / 2; ++e) {
      S[e] = power_of_2(factor * S[e] - factor * m[e % 4 / 2]);
      l[e % 4 / 2] += S[e];  // of this thread's columns alone
    }
  };
  const auto pack = [&] {  // P becomes an operand
    for (int e = 0; e < Bc / 4; ++e) {
      const half2 two = __floats2half2_rn(S[2 * e], S[2 * e + 1]);
      P[e / 4][e % 4] = *reinterpret_cast<const unsigned*>(&two);
    }
  };
  // Read after write: K_0 has landed.
  wait(s.full[0], 0);
  start<true>(S, Q_reg, s, 0, /*add=*/false);
  finish_and_release<0>(S, s, 0);
  softmax(0);
  // Read after write: V_0 has landed.
  wait(s.full[1], 0);
  pack();
  for (int j = 1; j < tiles; ++j) {
    // Read after write: K_j has landed.
    wait(s.full[2 * j % BUFFERS], 2 * j / BUFFERS);
    start<true>(S, Q_reg, s, 2 * j, /*add=*/false);
    start<false>(O_reg, P, s, 2 * j - 1, /*add=*/true);
    finish_and_release<1>(S, s, 2 * j);
    softmax(j);  // while P V_(j-1) runs
    // Read after write: V_j has landed. Without this branch ptxas moves the softmax behind P V.
    wait(s.full[(2 * j + 1) % BUFFERS], (2 * j + 1) / BUFFERS);
    finish_and_release<0>(O_reg, s, 2 * j - 1);
    for (int e = 0; e < d / 2; ++e) O_reg[e] *= alpha[e % 4 / 2];
    pack();
  }
  start<false>(O_reg, P, s, 2 * tiles - 1, /*add=*/true);
  finish_and_release<0>(O_reg, s, 2 * tiles - 1);
  for (int r = 0; r < 2; ++r)
    for (int other = 1; other < 4; other *= 2) l[r] += __shfl_xor_sync(0xFFFFFFFFu, l[r], other);
  for (int e = 0; e < d / 4; ++e) {
    const size_t i = y + e % 2 * 8, c = e / 2 * 8 + 2 * t;
    const half2 two = __floats2half2_rn(O_reg[2 * e] / l[e % 2], O_reg[2 * e + 1] / l[e % 2]);
    if (i < N) *reinterpret_cast<half2*>(&O[(size_t(head) * N + i) * d + c]) = two;
  }
}

static void check(cudaError_t error, int exit_code = 1) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(exit_code);
}

/// What the TMA has to know of M, [heads, N, d]: it copies boxes of Bc rows and 64 columns.
static CUtensorMap tensor_map(int N, int heads, const half* M) {
  decltype(&cuTensorMapEncodeTiled) encode = nullptr;  // from the driver, which nvcc does not link
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void**)&encode, 12000, 0), 3);
  const cuuint64_t shape[] = {d, cuuint64_t(N), cuuint64_t(heads)}, bytes[] = {2 * d, 2ull * N * d};
  const cuuint32_t box[] = {64, Bc, 1}, steps[] = {1, 1, 1};
  CUtensorMap map;  // the runtime numbers errors as the driver does
  check(cudaError_t(encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, (void*)M, shape, bytes, box,
                           steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)));
  return map;
}

using Number = half;  // of Q, K, V and O
constexpr char name[] = "FlashAttention-2, Hopper";
constexpr double tolerance = 2e-3;  // P and O are rounded to fp16, by 2^-11 at most; |V| <= 2

/// Computes O; all pointers are to HBM. The maps are of the first call's K and V.
static void attention(int N, int heads, bool causal, const half* Q, const half* K, const half* V,
                      half* O) {
  static const CUtensorMap K_map = tensor_map(N, heads, K), V_map = tensor_map(N, heads, V);
  const auto size = cudaFuncAttributeMaxDynamicSharedMemorySize;
  check(cudaFuncSetAttribute(fa2_forward, size, sizeof(Shared)), 3);  // 3: no Hopper GPU
  const dim3 grid((N + Br - 1) / Br, heads);
  fa2_forward<<<grid, dim3(THREADS), sizeof(Shared)>>>(N, causal, Q, K_map, V_map, O);
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
