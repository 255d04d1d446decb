// 07 FlashAttention-2, backward: what the kernels of both steps are made of.
//
// A block has 8 warps in two halves that do the same to different matrices, since the products come in pairs that share no operand:
//   half 0: S = Q K^T, then P;   dV += P^T dO          half 1: dP = dO V^T, then dS;   dK += dS^T Q
// and both compute dQ = dS K, a half of the columns each. The 4 warps of a half share the rows of their product. A thread holds
//   TM x TN of S or dP,  TK x 4 TD of dV or dK,  TQ x 4 TC of dQ.
// Tiles lie in shared memory as they lie in HBM. The products need them in both directions: along the row in S and dP, where four steps of
// the inner dimension come in one float4, and down the column in dV, dK, where four columns do.
#pragma once

#include "06_fa2_forward/3_warp_tiled.cuh"

namespace flash::fa2_backward {
namespace {

using fa2_forward::add_outer_product;
using fa2_forward::LOG2_E;
using fa2_forward::unpack;

// Steps of the inner dimension that the compiler sees at once: enough to begin loads long before their use.
constexpr int UNROLL = 16;
constexpr int HALF = 4 * WARP, THREADS = 2 * HALF;

/// The tile sizes of one compiled kernel, and who holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_, int LanesOfScores, int LanesOfKeys>
struct Shape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int ROWS = Br / 4, KEYS = Bc / 4;  // of a warp, in products [Br, ...] and [Bc, ...]
  // S and dP [Br, Bc]: LX lanes side by side. A thread's rows come in groups of GROUP, 8 rows apart.
  static constexpr int LX = LanesOfScores, LY = WARP / LX, TM = ROWS / LY, TN = Bc / LX;
  static constexpr int GROUP = TM < 8 / LY ? TM : 8 / LY;
  // dV and dK [Bc, Width].
  static constexpr int KX = LanesOfKeys, KY = WARP / KX, TK = KEYS / KY, TD = Width / (4 * KX);
  // dQ [Br, Width / 2].
  static constexpr int QX = Width % 64 == 0 ? 8 : 4, QY = WARP / QX, TQ = ROWS / QY, TC = Width / 2 / (4 * QX);
  // Rows of tiles begin 4 banks after the one before: 8 lanes that read 16 bytes of 8 rows each meet all 32 banks once.
  static constexpr int STRIDE = Width + 4;
  // P and dS are written an element a lane, in rows of LX lanes that are GROUP rows apart: LX banks.
  static constexpr int P_STRIDE = Bc + LX / GROUP;
  static constexpr int SHARED_FLOATS = (2 * Bc + 2 * Br) * STRIDE + 2 * Br * P_STRIDE + 2 * Br;

  static_assert(Bc % 32 == 0 && P_STRIDE % 4 == 0, "rows of P and dS begin LX / GROUP banks apart and are read as float4");
  static_assert(TM >= 1 && TM * LY == ROWS && TN * LX == Bc, "S is dealt out evenly");
  static_assert(TK % 4 == 0 && TK * KY == KEYS && TD * 4 * KX == Width, "dK, dV are dealt out evenly, in fours");
  static_assert(TQ >= 1 && TQ * QY == ROWS && TC * 8 * QX == Width, "dQ is dealt out evenly, in fours of columns");
};

/// Where a thread stands in the tiles.
template <class C>
struct Place {
  int half = threadIdx.x / HALF;
  int warp = threadIdx.x % HALF / WARP;
  int lane = threadIdx.x % WARP;

  __device__ int score_row(int r) const {
    return warp * C::ROWS + lane / C::LX * C::GROUP + r % C::GROUP + C::LY * C::GROUP * (r / C::GROUP);
  }
  __device__ int score_col(int c) const { return lane % C::LX + C::LX * c; }
  __device__ int keys(int q) const { return warp * C::KEYS + 4 * (lane / C::KX + C::KY * q); }  // first of four
  __device__ int key_cols(int g) const { return 4 * (lane % C::KX + C::KX * g); }               // first of four
  __device__ int query_row(int r) const { return warp * C::ROWS + lane / C::QX + C::QY * r; }
  __device__ int query_cols(int g) const { return half * C::Width / 2 + 4 * (lane % C::QX + C::QX * g); }  // first of four
};

/// (7.3)  D = rowsum(dO o O), a warp for each query. If dQ is to be added to, dQ = 0.  Grid: (queries / warps of a block) * B*H.
__global__ void __launch_bounds__(THREADS)
    prepare_kernel(Problem problem, Tensor<const float> O_all, Tensor<const float> dO_all, Tensor<float> D_all,
                   Tensor<float> dQ_all, bool clear_dQ) {
  const int heads = problem.B * problem.H;
  const int b = blockIdx.x % heads / problem.H;
  const int h = blockIdx.x % heads % problem.H;
  const int i = blockIdx.x / heads * (THREADS / WARP) + threadIdx.x / WARP;
  const int lane = threadIdx.x % WARP;
  if (i >= problem.Nq) return;  // the whole warp leaves
  const Matrix<const float> O = O_all.head(b, h), dO = dO_all.head(b, h);
  const Matrix<float> dQ = dQ_all.head(b, h);
  float sum = 0.0f;
  for (int c = lane; c < problem.d; c += WARP) {
    sum += O(i, c) * dO(i, c);
    if (clear_dQ) dQ(i, c) = 0.0f;
  }
#pragma unroll
  for (int distance = WARP / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, distance);
  if (lane == 0) D_all.head_vector(b, h)(i) = sum;
}

/// Starts copying rows row0, row0 + 1, ... of M to a tile; zeros stand beyond its last row and column. A thread stays in its four columns,
/// so that its addresses advance by a constant.
template <class C, int Rows>
__device__ void load_async(const SharedMatrix<float>& tile, const Matrix<const float>& M, int row0, bool wide) {
  constexpr int quads = C::Width / 4, rows_at_once = THREADS / quads, steps = (Rows + rows_at_once - 1) / rows_at_once;
  const int col = 4 * (threadIdx.x % quads);
  const int first = threadIdx.x / quads;
  if (THREADS % quads != 0 && first >= rows_at_once) return;  // Width 96: some threads have nothing to copy
  if (wide && row0 + Rows <= M.rows) {
    const bool exists = col < M.cols;
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const int row = first + step * rows_at_once;
      if (Rows % rows_at_once != 0 && row >= Rows) break;
      cp_async_zfill<16>(tile.address(row, col), M.address(row0 + row, exists ? col : 0), exists ? 16 : 0);
    }
  } else {  // the last rows, or rows that do not begin at multiples of 16 bytes: element by element
#pragma unroll 1
    for (int row = first; row < Rows; row += rows_at_once) {
#pragma unroll 1
      for (int c = 0; c < 4; ++c) {
        const bool exists = row0 + row < M.rows && col + c < M.cols;
        cp_async_zfill<4>(tile.address(row, col + c), M.address(exists ? row0 + row : 0, exists ? col + c : 0), exists ? 4 : 0);
      }
    }
  }
}

/// One number per row of the tile; zeros beyond the last one.
template <int Rows>
__device__ void load_async(float* numbers, const Vector<const float>& v, int row0) {
  const int row = threadIdx.x;
  if (row >= Rows) return;
  const bool exists = row0 + row < v.size;
  cp_async_zfill<4>(&numbers[row], v.address(exists ? row0 + row : 0), exists ? 4 : 0);
}

/// (7.1), (7.2)  X_reg = A B^T   [Br, Width] x [Width, Bc]: S from Q and K, or dP from dO and V.
template <class C>
__device__ void product_of_rows(float (&X_reg)[C::TM][C::TN], const SharedMatrix<const float>& A,
                                const SharedMatrix<const float>& B, const Place<C>& at) {
#pragma unroll
  for (int r = 0; r < C::TM; ++r) {
#pragma unroll
    for (int c = 0; c < C::TN; ++c) X_reg[r][c] = 0.0f;
  }
#pragma unroll UNROLL / 8
  for (int k = 0; k < C::Width; k += 4) {
    float A_reg[4][C::TM], B_reg[4][C::TN];
#pragma unroll
    for (int r = 0; r < C::TM; ++r) {
      const float4 four = A.template as<float4>(at.score_row(r), k);
      A_reg[0][r] = four.x, A_reg[1][r] = four.y, A_reg[2][r] = four.z, A_reg[3][r] = four.w;
    }
#pragma unroll
    for (int c = 0; c < C::TN; ++c) {
      const float4 four = B.template as<float4>(at.score_col(c), k);
      B_reg[0][c] = four.x, B_reg[1][c] = four.y, B_reg[2][c] = four.z, B_reg[3][c] = four.w;
    }
#pragma unroll
    for (int step = 0; step < 4; ++step) add_outer_product(X_reg, A_reg[step], B_reg[step]);
  }
}

/// (7.4), (7.5)  Y_reg += P^T A   [Bc, Br] x [Br, Width]: dV from P and dO, or dK from dS and Q.
template <class C>
__device__ void add_product_of_columns(float (&Y_reg)[C::TK][4 * C::TD], const SharedMatrix<const float>& P,
                                       const SharedMatrix<const float>& A, const Place<C>& at) {
#pragma unroll UNROLL
  for (int i = 0; i < C::Br; ++i) {
    float P_reg[C::TK], A_reg[4 * C::TD];
#pragma unroll
    for (int q = 0; q < C::TK / 4; ++q) unpack(P_reg, 4 * q, P.template as<float4>(i, at.keys(q)));
#pragma unroll
    for (int g = 0; g < C::TD; ++g) unpack(A_reg, 4 * g, A.template as<float4>(i, at.key_cols(g)));
    add_outer_product(Y_reg, P_reg, A_reg);
  }
}

/// (7.6)  Z_reg += dS K   [Br, Bc] x [Bc, Width]: dQ, not scaled.
template <class C>
__device__ void add_product_with_K(float (&Z_reg)[C::TQ][4 * C::TC], const SharedMatrix<const float>& dS,
                                   const SharedMatrix<const float>& K, const Place<C>& at) {
#pragma unroll UNROLL / 4
  for (int j = 0; j < C::Bc; j += 4) {
    float dS_reg[4][C::TQ];
#pragma unroll
    for (int r = 0; r < C::TQ; ++r) {
      const float4 four = dS.template as<float4>(at.query_row(r), j);
      dS_reg[0][r] = four.x, dS_reg[1][r] = four.y, dS_reg[2][r] = four.z, dS_reg[3][r] = four.w;
    }
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      float K_reg[4 * C::TC];
#pragma unroll
      for (int g = 0; g < C::TC; ++g) unpack(K_reg, 4 * g, K.template as<float4>(j + step, at.query_cols(g)));
      add_outer_product(Z_reg, dS_reg[step], K_reg);
    }
  }
}

/// S_reg = scale S_reg + bias, masked: keys that a query does not see, or that do not exist, score -inf.
template <class C>
__device__ void finish_scores(float (&S_reg)[C::TM][C::TN], const Problem& problem, const Bias& bias,
                              const Matrix<const float>& values, int row0, int col0, bool masked, const Place<C>& at) {
#pragma unroll
  for (int r = 0; r < C::TM; ++r) {
#pragma unroll
    for (int c = 0; c < C::TN; ++c) S_reg[r][c] *= problem.scale;
  }
  if (bias.kind == BiasKind::alibi) {
    const float slope = values(0, 0);
    const int first = row0 + bias.diagonal - col0;
#pragma unroll
    for (int r = 0; r < C::TM; ++r) {
#pragma unroll
      for (int c = 0; c < C::TN; ++c) {
        S_reg[r][c] -= slope * fabsf(static_cast<float>(first + at.score_row(r) - at.score_col(c)));
      }
    }
  } else if (bias.kind != BiasKind::none) {
#pragma unroll
    for (int r = 0; r < C::TM; ++r) {
      const int i = row0 + at.score_row(r);
#pragma unroll
      for (int c = 0; c < C::TN; ++c) {
        const int j = col0 + at.score_col(c);
        if (i < problem.Nq && j < problem.Nk) S_reg[r][c] += values(i, j);
      }
      asm volatile("" ::: "memory");  // a row at a time: for the values of all rows at once there are not enough registers
    }
  }
  if (!masked) return;
#pragma unroll
  for (int r = 0; r < C::TM; ++r) {
    const int visible = problem.visible_keys(row0 + at.score_row(r)) - col0;
#pragma unroll
    for (int c = 0; c < C::TN; ++c) {
      if (at.score_col(c) >= visible) S_reg[r][c] = -INFINITY;
    }
  }
}

/// (7.1)  P = e^(S - L), to shared memory.
template <class C>
__device__ void store_P(const SharedMatrix<float>& P, const float (&S_reg)[C::TM][C::TN], const float* L, const Place<C>& at) {
#pragma unroll
  for (int r = 0; r < C::TM; ++r) {
    const int row = at.score_row(r);
    const float L_row = L[row] == -INFINITY ? 0.0f : L[row];  // a row that sees no key: e^(-inf - 0) = 0, not NaN
#pragma unroll
    for (int c = 0; c < C::TN; ++c) P(row, at.score_col(c)) = exp2_approx((S_reg[r][c] - L_row) * LOG2_E);
  }
}

/// (7.3)  dS = P o (dP - D), to shared memory.
template <class C>
__device__ void store_dS(const SharedMatrix<float>& dS, const SharedMatrix<const float>& P, const float (&dP_reg)[C::TM][C::TN],
                         const float* D, const Place<C>& at) {
#pragma unroll
  for (int r = 0; r < C::TM; ++r) {
    const int row = at.score_row(r);
    const float D_row = D[row];
#pragma unroll
    for (int c = 0; c < C::TN; ++c) {
      const int col = at.score_col(c);
      dS(row, col) = P(row, col) * (dP_reg[r][c] - D_row);
    }
  }
}

/// factor * values, as four columns of a row of a gradient, or added to what is there.
__device__ inline void write_four(const Matrix<float>& G, int row, int col, float factor, const float* values, bool add,
                                  bool wide) {
  if (wide && col < G.cols) {
    float4 sum = make_float4(factor * values[0], factor * values[1], factor * values[2], factor * values[3]);
    if (add) {
      const float4 before = G.as<const float4>(row, col);
      sum = make_float4(before.x + sum.x, before.y + sum.y, before.z + sum.z, before.w + sum.w);
    }
    store4(G.address(row, col), sum);
  } else {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (col + c >= G.cols) break;
      const float before = add ? static_cast<float>(G(row, col + c)) : 0.0f;
      G(row, col + c) = before + factor * values[c];
    }
  }
}

/// This thread's part of the tile of dK or dV that begins at row0 becomes factor * Y_reg, or that is added to it.
template <class C>
__device__ void write_gradient(const Matrix<float>& G, int row0, float factor, const float (&Y_reg)[C::TK][4 * C::TD], bool add,
                               bool wide, const Place<C>& at) {
#pragma unroll
  for (int r = 0; r < C::TK; ++r) {
    const int j = row0 + at.keys(r / 4) + r % 4;
    if (j >= G.rows) continue;
#pragma unroll
    for (int g = 0; g < C::TD; ++g) write_four(G, j, at.key_cols(g), factor, &Y_reg[r][4 * g], add, wide);
  }
}

/// The tensors of the pass.
struct Operands {
  Tensor<const float> Q, K, V, dO, L, D;
  Tensor<float> dQ, dK, dV;
  Bias bias;
};

/// Can four neighbouring elements be read and written as one in all rows of these tensors?
bool rows_are_aligned(const Attention& a) {
  const auto aligned = [&](const TensorRef& t) {
    const bool strides = t.stride[0] % 4 == 0 && t.stride[1] % 4 == 0 && t.stride[2] % 4 == 0;
    return strides && reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0;
  };
  return a.problem.d % 4 == 0 && aligned(a.Q) && aligned(a.K) && aligned(a.V) && aligned(a.dO) && aligned(a.dK) &&
         aligned(a.dV);
}

/// The operands of a run.
Operands operands_of(const Attention& a) {
  return {view<const float>(a.Q), view<const float>(a.K),
          view<const float>(a.V), view<const float>(a.dO),
          view<const float>(a.L), view<const float>(a.workspace("D")),
          view<float>(a.dQ),      view<float>(a.dK),
          view<float>(a.dV),      bias_of(a)};
}

/// D, before everything else.
void launch_prepare(const Attention& a, bool clear_dQ) {
  const Problem& p = a.problem;
  launch("prepare", {dim3(blocks_for(p.Nq, THREADS / WARP) * static_cast<unsigned>(p.B * p.H)), dim3(THREADS)}, prepare_kernel,
         p, view<const float>(a.O), view<const float>(a.dO), view<float>(a.workspace("D")), view<float>(a.dQ), clear_dQ);
}

std::vector<WorkspaceSpec> workspace(const Problem& p, Pass pass) {
  if (pass == Pass::forward) return {};
  return {{"D", {p.B, p.H, p.Nq, 1}}};
}

/// The grids: prepare has a block for every 8 queries, dk_dv and the one kernel for at least every 32 keys, dq for every 16 queries.
std::string refuse(const Problem& p) {
  constexpr std::int64_t limit = 2147483647;
  const auto beyond = [&](std::int64_t heads, int rows, int rows_of_block, const char* what) -> std::string {
    if (heads <= limit / blocks_for(rows, rows_of_block)) return "";
    return std::to_string(heads) + " heads with " + std::to_string(rows) + what + std::to_string(limit) +
           " blocks in a row, each of " + std::to_string(rows_of_block) + " or more";
  };
  const std::string queries =
      beyond(std::int64_t{p.B} * p.H, p.Nq, THREADS / WARP, " queries each; a CUDA grid holds at most ");
  if (!queries.empty()) return queries;
  return beyond(std::int64_t{p.B} * p.Hkv, p.Nk, 32, " keys each; a CUDA grid holds at most ");
}

}  // namespace
}  // namespace flash::fa2_backward
