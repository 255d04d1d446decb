// 06 FlashAttention-2, forward, step 2: register tiles.
//
//   for each tile i of Q, a block of its own, for each tile j of K, V that it sees:
//     S = scale Q_i K_j^T + bias, masked                    [Br, d] x [d, Bc]           (6.1)
//     m_new = max(m, rowmax S),   alpha = e^{m - m_new}                                 (6.2)
//     P = exp(S - m_new),   l = alpha l + rowsum P                                      (6.3)
//     O = alpha O + P V_j                                   [Br, Bc] x [Bc, d]          (6.4)
//   O = O / l,   L = m + ln l                                                           (6.5)
//
// What changed since step 1: a row is no more a thread's, but a warp's. A thread of step 1 reads 36 numbers from shared memory for
// the 32 multiply-adds of a step of q . k. Here it holds TM x TN of S, then TM x TD of O: at each step of a product it reads TM + TN
// numbers, and each of them is used TN or TM times: 16 numbers for 64 multiply-adds. The price: the lanes of a row meet in shuffles
// for its maximum and sum, and P goes through shared memory, as a lane needs other columns of P than it holds.
//
// Grid: tiles of Q x B*H. Block: warps; a warp owns WARP_ROWS whole rows. Its lanes stand in 4 rows of 8: lane (y, x) holds rows
//   y, y + 4, ... and columns x, x + 8, ... of S and of O.
// Shared memory: Q_i [Br, Width], K_j, V_j [Bc, Width], P [Br, Bc], all with padded rows. HBM: as step 1 (6.6).
// Shapes: all; d is padded with zeros to 32, 64, 96 or 128.
#pragma once

#include "common/device/device.cuh"
#include "common/device/warp.cuh"

#include <algorithm>

namespace flash::fa2_forward {
namespace {

constexpr int LX = 8, LY = WARP / LX;  // lanes side by side, and above each other
// A warp reads a column of 8 rows of K, or of 4 rows of Q. With 4 floats more, rows begin 4 banks apart: no two share a bank.
constexpr int PAD = 4;
// A warp writes 4 rows of 8 neighbours of P: with rows 8 banks apart they meet all 32 banks once.
constexpr int P_PAD = LX;

/// The tile sizes of one compiled kernel, and who holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int RowsOfThread>
struct Shape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int TM = RowsOfThread;  // rows of S and O that a thread holds
  static constexpr int TN = Bc / LX;       // columns of S
  static constexpr int TD = Width / LX;    // columns of O
  static constexpr int WARP_ROWS = TM * LY;
  static constexpr int THREADS = Br / WARP_ROWS * WARP;
  static constexpr int STRIDE = Width + PAD, P_STRIDE = Bc + P_PAD;
  static constexpr int SHARED_FLOATS = (Br + 2 * Bc) * STRIDE + Br * P_STRIDE;

  static_assert(Br % WARP_ROWS == 0, "a warp owns whole rows");
  static_assert(Bc % 32 == 0 && Width % 32 == 0, "without padding all rows of a tile begin in the same bank");
};

/// Where a thread stands in its tile.
template <class C>
struct Place {
  int x = threadIdx.x % LX;
  int first_row = threadIdx.x / WARP * C::WARP_ROWS + threadIdx.x % WARP / LX;

  __device__ int row(int r) const { return first_row + LY * r; }  // the thread's r-th row
  __device__ int score_col(int c) const { return x + LX * c; }    // its c-th column of S
  __device__ int output_col(int c) const { return x + LX * c; }   // its c-th column of O
};

/// Rows row0, row0 + 1, ... of M as a tile in shared memory, copied by the whole block: neighbouring threads copy neighbouring
/// elements, an Access (float, or float4 where rows are aligned) each. Zeros stand beyond the edges of M: 0 times what lay there
/// before, perhaps NaN, would not be 0.
template <int Width, class Access, class T>
__device__ void load_tile(const SharedMatrix<float>& tile, const Matrix<T>& M, int row0) {
  constexpr int N = sizeof(Access) / sizeof(float);
  for (int e = threadIdx.x; e < tile.rows * (Width / N); e += blockDim.x) {
    const int row = e / (Width / N);
    const int col = e % (Width / N) * N;
    const bool exists = row0 + row < M.rows && col < M.cols;
    tile.as<Access>(row, col) = exists ? M.template as<const Access>(row0 + row, col) : Access{};
  }
}

/// (6.1)  S_reg = Q K^T: this thread's TM x TN dot products. Of 4 unrolled steps nvcc reads Q and K as one float4.
template <class C>
__device__ void scores(float (&S_reg)[C::TM][C::TN], const SharedMatrix<const float>& Q, const SharedMatrix<const float>& K,
                       const Place<C>& at) {
#pragma unroll
  for (int r = 0; r < C::TM; ++r) {
#pragma unroll
    for (int c = 0; c < C::TN; ++c) S_reg[r][c] = 0.0f;
  }
#pragma unroll 4
  for (int k = 0; k < C::Width; ++k) {
    float Q_reg[C::TM], K_reg[C::TN];
#pragma unroll
    for (int r = 0; r < C::TM; ++r) Q_reg[r] = Q(at.row(r), k);
#pragma unroll
    for (int c = 0; c < C::TN; ++c) K_reg[c] = K(at.score_col(c), k);
#pragma unroll
    for (int r = 0; r < C::TM; ++r) {
#pragma unroll
      for (int c = 0; c < C::TN; ++c) S_reg[r][c] += Q_reg[r] * K_reg[c];
    }
  }
}

/// (6.4)  O_reg += P V.
template <class C>
__device__ void accumulate_output(float (&O_reg)[C::TM][C::TD], const SharedMatrix<const float>& P,
                                  const SharedMatrix<const float>& V, const Place<C>& at) {
#pragma unroll 4
  for (int k = 0; k < C::Bc; ++k) {
    float P_reg[C::TM], V_reg[C::TD];
#pragma unroll
    for (int r = 0; r < C::TM; ++r) P_reg[r] = P(at.row(r), k);
#pragma unroll
    for (int c = 0; c < C::TD; ++c) V_reg[c] = V(k, at.output_col(c));
#pragma unroll
    for (int r = 0; r < C::TM; ++r) {
#pragma unroll
      for (int c = 0; c < C::TD; ++c) O_reg[r][c] += P_reg[r] * V_reg[c];
    }
  }
}

/// (6.2), (6.3)  S_reg becomes P; m, and l of this lane's columns, are brought up to date; O_reg is rescaled.
template <class C>
__device__ void online_softmax(float (&S_reg)[C::TM][C::TN], float (&O_reg)[C::TM][C::TD], float (&m)[C::TM],
                               float (&l)[C::TM]) {
#pragma unroll
  for (int r = 0; r < C::TM; ++r) {
    float m_new = m[r];
#pragma unroll
    for (int c = 0; c < C::TN; ++c) m_new = fmaxf(m_new, S_reg[r][c]);
#pragma unroll
    for (int distance = LX / 2; distance > 0; distance /= 2) {
      m_new = fmaxf(m_new, __shfl_xor_sync(ALL_LANES, m_new, distance));
    }
    const float shift = m_new == -INFINITY ? 0.0f : m_new;  // no visible key yet: e^(-inf - 0) = 0, not NaN
    const float alpha = expf(m[r] - shift);
    m[r] = m_new;
    l[r] *= alpha;
#pragma unroll
    for (int c = 0; c < C::TN; ++c) {
      S_reg[r][c] = expf(S_reg[r][c] - shift);
      l[r] += S_reg[r][c];
    }
#pragma unroll
    for (int c = 0; c < C::TD; ++c) O_reg[r][c] *= alpha;
  }
}

/// (6.5)  Normalises and writes the thread's part of O and L. 8 neighbouring lanes write 32 neighbouring bytes, a sector.
template <class C>
__device__ void write_output(const float (&O_reg)[C::TM][C::TD], const float (&m)[C::TM], const float (&l)[C::TM],
                             const Matrix<float>& O, const Vector<float>& L, int row0, const Place<C>& at) {
#pragma unroll
  for (int r = 0; r < C::TM; ++r) {
    float sum = l[r];  // of this lane's columns; then of the row
#pragma unroll
    for (int distance = LX / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;  // no visible key: O = 0
    const int i = row0 + at.row(r);
    if (i >= O.rows) continue;
    if (at.x == 0) L(i) = m[r] + logf(sum);
#pragma unroll
    for (int c = 0; c < C::TD; ++c) {
      if (at.output_col(c) < O.cols) O(i, at.output_col(c)) = O_reg[r][c] * inverse;
    }
  }
}

/// Grid: Tr*B*H. Block: C::THREADS.  Access: float4, or float where rows of Q, K or V are not aligned to it.
template <class C, class Access>
__global__ void __launch_bounds__(C::THREADS)
    forward_kernel(Problem problem, Tensor<const float> Q_all, Tensor<const float> K_all, Tensor<const float> V_all, Bias bias,
                   Tensor<float> O_all, Tensor<float> L_all) {
  const int Tr = (problem.Nq + C::Br - 1) / C::Br;
  const int row0 = blockIdx.x % Tr * C::Br;
  const int h = blockIdx.x / Tr % problem.H;
  const int b = blockIdx.x / Tr / problem.H;
  const Matrix<const float> K = K_all.head(b, problem.kv_head(h));
  const Matrix<const float> V = V_all.head(b, problem.kv_head(h));

  float* const shared = dynamic_shared<float>(C::SHARED_FLOATS);
  const SharedMatrix<float> Q_smem{shared, C::Br, C::Width, C::STRIDE};
  const SharedMatrix<float> K_smem{Q_smem.data + C::Br * C::STRIDE, C::Bc, C::Width, C::STRIDE};
  const SharedMatrix<float> V_smem{K_smem.data + C::Bc * C::STRIDE, C::Bc, C::Width, C::STRIDE};
  const SharedMatrix<float> P_smem{V_smem.data + C::Bc * C::STRIDE, C::Br, C::Bc, C::P_STRIDE};

  // 1. The tile of Q, once; O = 0, l = 0, m = -inf.
  load_tile<C::Width, Access>(Q_smem, Q_all.head(b, h), row0);
  const Place<C> at;
  float O_reg[C::TM][C::TD] = {};  // O tile [Br, Width], not normalised
  float m[C::TM], l[C::TM];        // l: of this lane's columns alone
#pragma unroll
  for (int r = 0; r < C::TM; ++r) {
    m[r] = -INFINITY;
    l[r] = 0.0f;
  }

  // 2. The tiles of K and V, up to the last key that the last row of this tile sees.
  const int keys_of_tile = problem.visible_keys(min(row0 + C::Br, problem.Nq) - 1);
  for (int col0 = 0; col0 < keys_of_tile; col0 += C::Bc) {
    load_tile<C::Width, Access>(K_smem, K, col0);
    load_tile<C::Width, Access>(V_smem, V, col0);
    __syncthreads();  // read after write: a thread reads rows of Q, K and V that others have loaded

    // S = scale Q K^T + bias, masked; what does not exist is not visible either.
    float S_reg[C::TM][C::TN];  // S tile [Br, Bc], then P
    scores<C>(S_reg, Q_smem, K_smem, at);
#pragma unroll
    for (int r = 0; r < C::TM; ++r) {
#pragma unroll
      for (int c = 0; c < C::TN; ++c) {
        const int i = row0 + at.row(r), j = col0 + at.score_col(c);
        S_reg[r][c] = i < problem.Nq && j < problem.Nk ? score(problem, bias, b, h, i, j, S_reg[r][c]) : -INFINITY;
      }
    }
    online_softmax<C>(S_reg, O_reg, m, l);

    // O += P V. P goes through shared memory, within the warp that owns its rows.
#pragma unroll
    for (int r = 0; r < C::TM; ++r) {
#pragma unroll
      for (int c = 0; c < C::TN; ++c) P_smem(at.row(r), at.score_col(c)) = S_reg[r][c];
    }
    __syncwarp();  // read after write: a lane reads what the others of its warp have written
    accumulate_output<C>(O_reg, P_smem, V_smem, at);
    __syncthreads();  // write after read: the next tiles of K, V and P overwrite what slower threads still read
  }

  // 3. (6.5)
  write_output<C>(O_reg, m, l, O_all.head(b, h), L_all.head_vector(b, h), row0, at);
}

/// Can each row of a tensor be read as float4?
inline bool wide_rows(const TensorRef& t) {
  const auto aligned = [](std::int64_t elements) { return elements % 4 == 0; };
  return reinterpret_cast<std::uintptr_t>(t.data) % sizeof(float4) == 0 && aligned(t.shape[3]) && aligned(t.stride[0]) &&
         aligned(t.stride[1]) && aligned(t.stride[2]);
}

template <class C>
void start(const Attention& a) {
  const Problem& p = a.problem;
  const bool wide = wide_rows(a.Q) && wide_rows(a.K) && wide_rows(a.V);
  const auto kernel = wide ? forward_kernel<C, float4> : forward_kernel<C, float>;
  const unsigned blocks = blocks_for(p.Nq, C::Br) * static_cast<unsigned>(p.B * p.H);
  launch("fa2_forward", {dim3(blocks), dim3(C::THREADS), C::SHARED_FLOATS * sizeof(float)}, kernel, p, view<const float>(a.Q),
         view<const float>(a.K), view<const float>(a.V), bias_of(a), view<float>(a.O), view<float>(a.L));
}

/// A compiled kernel.
struct Compiled {
  int width;
  Tiles tiles;
  int threads;
  std::size_t shared_bytes;
  const char* why;
  void (*start)(const Attention&);
};

template <class C>
constexpr Compiled compiled(const char* why) {
  return {C::Width, {C::Br, C::Bc}, C::THREADS, C::SHARED_FLOATS * sizeof(float), why, start<C>};
}

// For each width two: large tiles, and smaller ones for short problems and for the 64 KB of sm_75.
constexpr Compiled kernels[] = {
    compiled<Shape<32, 128, 64, 8>>("8 x 8 scores a thread"),
    compiled<Shape<32, 64, 32, 4>>("twice as many blocks, little shared memory"),
    compiled<Shape<64, 128, 64, 8>>("8 x 8 scores and outputs a thread"),
    compiled<Shape<64, 64, 32, 4>>("twice as many blocks, little shared memory"),
    compiled<Shape<96, 64, 64, 4>>("4 x 8 scores and 4 x 12 outputs a thread"),
    compiled<Shape<96, 32, 32, 4>>("twice as many blocks, little shared memory"),
    compiled<Shape<128, 64, 32, 4>>("4 x 4 scores and 4 x 16 outputs a thread"),
    compiled<Shape<128, 32, 32, 4>>("twice as many blocks, little shared memory"),
};

/// d padded to a width that is compiled.
int width_of(int d) { return (d + 31) / 32 * 32; }

/// Those whose shared memory the device has. If the first has too few tiles of Q to give each SM a block, the other comes before it.
std::vector<TileChoice> tiles(const Problem& p, Pass, const DeviceLimits& limits) {
  std::vector<TileChoice> fit;
  for (const Compiled& k : kernels) {
    if (k.width == width_of(p.d) && k.shared_bytes <= limits.shared_bytes)
      fit.push_back({k.tiles, k.threads, k.shared_bytes, k.why});
  }
  const auto blocks = [&](const TileChoice& choice) { return std::int64_t{blocks_for(p.Nq, choice.tiles.Br)} * p.B * p.H; };
  if (!fit.empty() && blocks(fit.front()) < limits.multiprocessors) std::reverse(fit.begin(), fit.end());
  return fit;
}

void forward(const Attention& a) {
  for (const Compiled& k : kernels) {
    if (k.width == width_of(a.problem.d) && k.tiles == a.tiles) return k.start(a);
  }
}

/// "" or why the grid cannot hold a problem: it has a block for each tile of Q, batch and head, in x. Tiles have 32 rows at least.
std::string refuse(const Problem& p) {
  constexpr std::int64_t limit = 2147483647;
  const std::int64_t tiles_of_head = blocks_for(p.Nq, 32), heads = std::int64_t{p.B} * p.H;
  if (heads <= limit / tiles_of_head) return "";
  return std::to_string(heads) + " heads with " + std::to_string(p.Nq) + " queries each; a CUDA grid holds at most " +
         std::to_string(limit) + " blocks in a row, each of 32 queries or more";
}

const Variant variant{.name = "register_tiles",
                      .idea = "a thread holds a tile of S and of O, the lanes of a row meet in shuffles",
                      .forward = forward,
                      .refuse = refuse,
                      .tiles = tiles};

}  // namespace
}  // namespace flash::fa2_forward
