// 08 Tensor cores, forward, step 2: ldmatrix, and a swizzle in place of padding.
//
//   S = scale Q_i K_j^T + bias, masked                     [Br, d] x [d, Bc]           (6.1)
//   m_new = max(m, rowmax S),   alpha = e^(m - m_new)                                  (6.2)
//   P = e^(S - m_new),   l = alpha l + rowsum P                                        (6.3)
//   O = alpha O + P V_j                                    [Br, Bc] x [Bc, d]          (8.4)
//   at the end  O = O / l,   L = m + ln l                                              (6.5)
//
// New since step 1, which computes the same on the same tiles:
// - One ldmatrix brings a whole operand of 16 x 16, or two of 16 x 8, where step 1 needs four reads, and eight of V.
// - Rows are not padded. Chunks of 16 bytes change places within their row instead, so that the 8 rows that ldmatrix reads at a time, and
//   the chunks that are copied at a time, lie in different banks (docs/swizzles.md).
//
// Grid: Tr*B*H. Block: warps; a warp owns 16 TM rows of S and O; a row is shared by the 4 lanes of a quad.
// HBM: Q once, K and V once for each tile of Q that sees them, O and L written once.  Workspace: padded copies where d % 8 != 0.
// Shapes: all; d is padded with zeros to 32, 64, 96, 128 or 256.
#pragma once

#include "08_tensor_cores/parts.cuh"

namespace flash::tensor_cores {
namespace {

/// The tile sizes of one compiled kernel, and who holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int RowTiles, int Blocks>
struct Shape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int TM = RowTiles;    // tiles of 16 rows that a warp owns
  static constexpr int TN = Bc / 8;      // tiles of 8 keys
  static constexpr int TK = Width / 16;  // steps of the inner dimension of Q K^T
  static constexpr int TD = Width / 8;   // tiles of 8 columns of O
  static constexpr int THREADS = Br / (16 * TM) * WARP;
  static constexpr int BLOCKS = Blocks;                                   // of an SM, to share its registers
  static constexpr int SHARED_NUMBERS = Width * (Br + 2 * Bc) + Br * Bc;  // Q, K, V and P
  static constexpr int MIN_SM = min_sm(Width, TM, SHARED_NUMBERS);

  static_assert(Br % (16 * TM) == 0 && Bc % 16 == 0 && Width % 32 == 0, "whole fragments");
};

/// Copies rows row0, row0 + 1, ... of M to a tile, a chunk of 16 bytes at a time; zeros stand beyond the last row and column. M's rows begin
/// at multiples of 16 bytes.
template <class T, class C>
__device__ void load(const SharedMatrix<T>& tile, const Matrix<const T>& M, int row0) {
  constexpr int chunks = C::Width / 8;
  for (int index = opaque(static_cast<int>(threadIdx.x)); index < tile.rows * chunks; index += C::THREADS) {
    const int row = index / chunks, col = index % chunks * 8;
    uint4 chunk = make_uint4(0, 0, 0, 0);
    if (row0 + row < M.rows && col < M.cols) chunk = M.template as<uint4>(row0 + row, col);
    tile.template as<uint4>(row, swizzled_col(C::Width, row, col)) = chunk;
  }
}

/// (6.1)  S_reg = Q K^T: the warp's 16 TM rows.
template <class T, class C>
__device__ void scores(float (&S_reg)[C::TM][C::TN][4], const SharedMatrix<const T>& Q, const SharedMatrix<const T>& K,
                       const Place<C::TM>& at) {
  // An A operand takes its four 8 x 8 matrices from rows 0..15 of the left and then of the right chunk; two B operands of K take theirs
  // from the left and the right chunk of rows 0..7 and then of rows 8..15.
  const int Q_row = at.warp_row + at.lane % 16, Q_col = 8 * (at.lane / 16);
  const int K_row = at.lane % 8 + 8 * (at.lane / 16), K_col = 8 * (at.lane / 8 % 2);
#pragma unroll
  for (int i = 0; i < C::TM; ++i) {
#pragma unroll
    for (int n = 0; n < C::TN; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) S_reg[i][n][e] = 0.0f;
    }
  }
#pragma unroll
  for (int k = 0; k < C::TK; ++k) {
    unsigned A[C::TM][4];
#pragma unroll
    for (int i = 0; i < C::TM; ++i) {
      ldmatrix_x4(A[i], Q.address(Q_row + 16 * i, swizzled_col(C::Width, Q_row, 16 * k + Q_col)));
    }
#pragma unroll
    for (int n = 0; n < C::TN; n += 2) {
      unsigned B[4];  // of keys 8n..8n+7 and 8n+8..8n+15
      ldmatrix_x4(B, K.address(K_row + 8 * n, swizzled_col(C::Width, K_row, 16 * k + K_col)));
#pragma unroll
      for (int i = 0; i < C::TM; ++i) {
        add_mma<T>(S_reg[i][n], A[i], B[0], B[1]);
        add_mma<T>(S_reg[i][n + 1], A[i], B[2], B[3]);
      }
    }
  }
}

/// (6.2), (6.3)  S_reg becomes P; m, and l of this lane's columns, are brought up to date; O_reg is rescaled.
template <class C>
__device__ void online_softmax(float (&S_reg)[C::TM][C::TN][4], float (&O_reg)[C::TM][C::TD][4], float (&m)[C::TM][2],
                               float (&l)[C::TM][2]) {
#pragma unroll
  for (int i = 0; i < C::TM; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float m_new = m[i][half];
#pragma unroll
      for (int n = 0; n < C::TN; ++n) m_new = fmaxf(fmaxf(m_new, S_reg[i][n][2 * half]), S_reg[i][n][2 * half + 1]);
      m_new = fmaxf(m_new, __shfl_xor_sync(ALL_LANES, m_new, 1));  // the lanes of a quad share the row
      m_new = fmaxf(m_new, __shfl_xor_sync(ALL_LANES, m_new, 2));
      const float shift = m_new == -INFINITY ? 0.0f : m_new;  // no visible key yet: e^(-inf - 0) = 0, not NaN
      const float alpha = expf(m[i][half] - shift);
      m[i][half] = m_new;
      l[i][half] *= alpha;
#pragma unroll
      for (int n = 0; n < C::TN; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          S_reg[i][n][e] = expf(S_reg[i][n][e] - shift);
          l[i][half] += S_reg[i][n][e];
        }
      }
#pragma unroll
      for (int n = 0; n < C::TD; ++n) {
        O_reg[i][n][2 * half] *= alpha;
        O_reg[i][n][2 * half + 1] *= alpha;
      }
    }
  }
}

/// P_reg, rounded to T, to the warp's rows of P in shared memory.
template <class T, class C>
__device__ void store_P(const SharedMatrix<T>& P, const float (&P_reg)[C::TM][C::TN][4], const Place<C::TM>& at) {
#pragma unroll
  for (int i = 0; i < C::TM; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = at.row(i, half);
#pragma unroll
      for (int n = 0; n < C::TN; ++n) {
        P.template as<unsigned>(row, swizzled_col(C::Bc, row, 8 * n) + at.col()) =
            pack<T>(P_reg[i][n][2 * half], P_reg[i][n][2 * half + 1]);
      }
    }
  }
}

/// (8.4)  O_reg += P V.
template <class T, class C>
__device__ void accumulate_output(float (&O_reg)[C::TM][C::TD][4], const SharedMatrix<const T>& P,
                                  const SharedMatrix<const T>& V, const Place<C::TM>& at) {
  // Two B operands of V, which needs to be transposed, take their four 8 x 8 matrices as an A operand does.
  const int P_row = at.warp_row + at.lane % 16, V_row = at.lane % 16, col = 8 * (at.lane / 16);
#pragma unroll
  for (int k = 0; k < C::Bc / 16; ++k) {
    unsigned A[C::TM][4];
#pragma unroll
    for (int i = 0; i < C::TM; ++i) {
      ldmatrix_x4(A[i], P.address(P_row + 16 * i, swizzled_col(C::Bc, P_row, 16 * k + col)));
    }
#pragma unroll
    for (int n = 0; n < C::TD; n += 2) {
      unsigned B[4];  // of columns 8n..8n+7 and 8n+8..8n+15
      ldmatrix_x4_trans(B, V.address(V_row + 16 * k, swizzled_col(C::Width, V_row, 8 * n + col)));
#pragma unroll
      for (int i = 0; i < C::TM; ++i) {
        add_mma<T>(O_reg[i][n], A[i], B[0], B[1]);
        add_mma<T>(O_reg[i][n + 1], A[i], B[2], B[3]);
      }
    }
  }
}

template <class T, class C>
__global__ void __launch_bounds__(C::THREADS, C::BLOCKS)
    forward_kernel(Problem problem, Tensor<const T> Q_all, Tensor<const T> K_all, Tensor<const T> V_all, Bias bias,
                   Tensor<T> O_all, Tensor<float> L_all) {
  if (C::MIN_SM > COMPILED_SM) return;  // not compiled for this GPU, and not chosen on it
  const int Tr = (problem.Nq + C::Br - 1) / C::Br;
  const int row0 = blockIdx.x % Tr * C::Br;
  const int b = blockIdx.x / Tr / problem.H;
  const int h = blockIdx.x / Tr % problem.H;
  const Matrix<const T> K = K_all.head(b, problem.kv_head(h));
  const Matrix<const T> V = V_all.head(b, problem.kv_head(h));

  T* const shared = dynamic_shared<T>(C::SHARED_NUMBERS);
  const SharedMatrix<T> Q_smem{shared, C::Br, C::Width, C::Width};
  const SharedMatrix<T> K_smem{Q_smem.data + C::Br * C::Width, C::Bc, C::Width, C::Width};
  const SharedMatrix<T> V_smem{K_smem.data + C::Bc * C::Width, C::Bc, C::Width, C::Width};
  const SharedMatrix<T> P_smem{V_smem.data + C::Bc * C::Width, C::Br, C::Bc, C::Bc};

  const Place<C::TM> at;
  float O_reg[C::TM][C::TD][4] = {};  // O tile [Br, Width], not normalised
  float m[C::TM][2], l[C::TM][2];     // l: of this lane's columns alone
#pragma unroll
  for (int i = 0; i < C::TM; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      m[i][half] = -INFINITY;
      l[i][half] = 0.0f;
    }
  }

  // Keys from seen_by_any on are seen by no row of the tile.
  const int seen_by_any = problem.visible_keys(min(row0 + C::Br, problem.Nq) - 1);
  const int Tc = (seen_by_any + C::Bc - 1) / C::Bc;

  // 1. Q.
  if (Tc > 0) load<T, C>(Q_smem, Q_all.head(b, h), row0);  // else no barrier would part it from O, which takes its place

  for (int j = 0; j < Tc; ++j) {
    // 2. K and V.
    const int col0 = j * C::Bc;
    if (j > 0) __syncthreads();  // write after read: no warp reads K and V of the tile before any more
    load<T, C>(K_smem, K, col0);
    load<T, C>(V_smem, V, col0);
    __syncthreads();  // read after write: K, V and Q of all threads are there

    // 3. S = Q K^T, and the softmax of its rows.
    float S_reg[C::TM][C::TN][4];  // S tile [Br, Bc], then P
    scores<T, C>(S_reg, Q_smem, K_smem, at);
    scale_and_add_bias(S_reg, problem, bias, bias.values.head(b, h), row0, col0, at);
    mask(S_reg, problem, row0, col0, at);
    online_softmax<C>(S_reg, O_reg, m, l);

    // 4. O += P V. P goes through shared memory to become an operand. The barrier of phase 2 has parted it from P of the tile before.
    store_P<T, C>(P_smem, S_reg, at);
    __syncwarp();  // read after write: ldmatrix reads whole rows, which several lanes have written
    accumulate_output<T, C>(O_reg, P_smem, V_smem, at);
  }
  write_output(Q_smem, O_reg, m, l, 1.0f, O_all.head(b, h), L_all.head_vector(b, h), row0, at, Swizzle<C::Width>{});
}

template <class T, class C>
void start_forward(const Attention& a) {
  const Problem& p = a.problem;
  const unsigned blocks = blocks_for(p.Nq, C::Br) * static_cast<unsigned>(p.B * p.H);
  launch("tensor_swizzle", {dim3(blocks), dim3(C::THREADS), C::SHARED_NUMBERS * sizeof(T)}, forward_kernel<T, C>, p,
         view<const T>(aligned<T>(a, a.Q, "Q_padded")), view<const T>(aligned<T>(a, a.K, "K_padded")),
         view<const T>(aligned<T>(a, a.V, "V_padded")), bias_of(a), view<T>(a.O), view<float>(a.L));
}

template <class C>
constexpr Compiled compiled(const char* why) {
  return {C::Width,
          C::MIN_SM,
          {C::Br, C::Bc},
          C::THREADS,
          C::SHARED_NUMBERS * 2,
          why,
          start_forward<__half, C>,
          start_forward<__nv_bfloat16, C>};
}

constexpr Compiled kernels[] = {
    compiled<Shape<32, 128, 64, 2, 2>>("32 rows a warp"),
    compiled<Shape<64, 128, 64, 2, 2>>("32 rows a warp"),
    compiled<Shape<96, 128, 32, 2, 2>>("32 rows a warp"),
    compiled<Shape<96, 64, 32, 1, 2>>("little shared memory"),
    compiled<Shape<128, 128, 32, 2, 2>>("32 rows a warp"),
    compiled<Shape<128, 64, 32, 1, 2>>("little shared memory"),
    compiled<Shape<256, 64, 32, 1, 2>>("16 rows a warp: more of O than that has no room"),
    compiled<Shape<256, 32, 32, 1, 2>>("little shared memory"),
};

std::vector<TileChoice> tiles(const Problem& p, Pass, const DeviceLimits& limits) { return choices(kernels, p, limits); }

void forward(const Attention& a) { start(kernels, a); }

const Variant variant{.name = "swizzle",
                      .idea = "ldmatrix, and an XOR swizzle in place of padding",
                      .forward = forward,
                      .workspace = forward_workspace,
                      .refuse = refuse_forward,
                      .tiles = tiles,
                      .dtypes = {Dtype::fp16, Dtype::bf16},
                      .max_head_dim = 256,
                      .refuse_on = refuse_on};

}  // namespace
}  // namespace flash::tensor_cores
