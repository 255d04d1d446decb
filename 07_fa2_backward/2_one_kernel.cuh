// 07 FlashAttention-2, backward, step 2: one kernel over tiles of K and V; dQ is summed by atomics.
//
//   for each tile j of K, V, a block of its own, for each tile i of Q, dO that sees any of it:
//     S = scale Q_i K_j^T + bias, masked;   P = e^(S - L_i)                             (7.1)
//     dP = dO_i V_j^T                                                                   (7.2)
//     dS = P o (dP - D_i)      with D = rowsum(dO o O), by a kernel before              (7.3)
//     dV_j += P^T dO_i                                                                  (7.4)
//     dK_j += scale dS^T Q_i                                                            (7.5)
//     dQ_i += scale dS K_j                                                              (7.6)
//
// New since step 1: dQ_i is added to HBM by each tile of K in turn, so that S and dP are computed once, not twice: five products
// instead of seven. Blocks add in the order in which they happen to get there, so the last bits of dQ differ between runs.
//
// Grid: Tc*B*Hkv; the block of a key/value head walks over all query heads that read it. Block: 8 warps in two halves that do the same to
//   different matrices, since two products share no operand:   half 0: S, P, dV    half 1: dP, dS, dK    both: dQ, a half of the columns each.
//   A half's 4 warps share the rows of their product; a warp's lanes stand in rows of LX.
// HBM: K, V once; Q, dO, L, D once for each tile of K that they see; dQ read and written each time, dK, dV once (7.7).  Workspace: D.
// Shapes: all; d is padded with zeros to 32, 64, 96 or 128.
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
  static constexpr int STRIDE = Width + 4, P_STRIDE = Bc + 4;
  static constexpr int SHARED_FLOATS = (2 * Bc + 2 * Br) * STRIDE + 2 * Br * P_STRIDE + 2 * Br;

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

/// D = rowsum(dO o O) of each query, by a warp; dQ = 0, to be added to.  Grid: (queries / warps of a block) * B*H.
__global__ void __launch_bounds__(THREADS)
    prepare_kernel(Problem problem, Tensor<const float> O_all, Tensor<const float> dO_all, Tensor<float> D_all,
                   Tensor<float> dQ_all) {
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
    dQ(i, c) = 0.0f;
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

/// (7.6)  dQ += scale dS K   [Br, Bc] x [Bc, Width]
template <class C>
__device__ void add_dQ(const Matrix<float>& dQ, int row0, float scale, const SharedMatrix<const float>& dS,
                       const SharedMatrix<const float>& K, bool wide, const Place<C>& at) {
  float Z_reg[C::TQ][4 * C::TC] = {};
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
#pragma unroll
  for (int r = 0; r < C::TQ; ++r) {
    const int i = row0 + at.query_row(r);
    if (i >= dQ.rows) continue;
#pragma unroll
    for (int g = 0; g < C::TC; ++g) {
      const float* const z = &Z_reg[r][4 * g];
      const int col = at.query_cols(g);
      if (wide && col < dQ.cols) {
        atomic_add4(dQ.address(i, col), make_float4(scale * z[0], scale * z[1], scale * z[2], scale * z[3]));
      } else {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if (col + c < dQ.cols) atomicAdd(dQ.address(i, col + c), scale * z[c]);
        }
      }
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

/// factor * Y_reg, this thread's part of the tile of dK or dV that begins at row0.
template <class C>
__device__ void write_gradient(const Matrix<float>& G, int row0, float factor, const float (&Y_reg)[C::TK][4 * C::TD],
                               bool wide, const Place<C>& at) {
#pragma unroll
  for (int r = 0; r < C::TK; ++r) {
    const int j = row0 + at.keys(r / 4) + r % 4;
    if (j >= G.rows) continue;
#pragma unroll
    for (int g = 0; g < C::TD; ++g) {
      const float* const y = &Y_reg[r][4 * g];
      const int col = at.key_cols(g);
      if (wide && col < G.cols) {
        G.template as<float4>(j, col) = make_float4(factor * y[0], factor * y[1], factor * y[2], factor * y[3]);
      } else {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if (col + c < G.cols) G(j, col + c) = factor * y[c];
        }
      }
    }
  }
}

/// The tensors of the pass.
struct Operands {
  Tensor<const float> Q, K, V, dO, L, D;
  Tensor<float> dQ, dK, dV;
  Bias bias;
};

template <class C>
__global__ void __launch_bounds__(THREADS, 1) backward_kernel(Problem problem, Operands all, bool wide) {
  // Under a causal mask the first keys are seen by most queries: their blocks start first.
  const int heads = problem.B * problem.Hkv;
  const int b = blockIdx.x % heads / problem.Hkv;
  const int h_kv = blockIdx.x % heads % problem.Hkv;
  const int col0 = blockIdx.x / heads * C::Bc;

  float* const shared = dynamic_shared<float>(C::SHARED_FLOATS);
  const SharedMatrix<float> K_smem{shared, C::Bc, C::Width, C::STRIDE};
  const SharedMatrix<float> V_smem{K_smem.data + C::Bc * C::STRIDE, C::Bc, C::Width, C::STRIDE};
  const SharedMatrix<float> Q_smem{V_smem.data + C::Bc * C::STRIDE, C::Br, C::Width, C::STRIDE};
  const SharedMatrix<float> dO_smem{Q_smem.data + C::Br * C::STRIDE, C::Br, C::Width, C::STRIDE};
  const SharedMatrix<float> P_smem{dO_smem.data + C::Br * C::STRIDE, C::Br, C::Bc, C::P_STRIDE};
  const SharedMatrix<float> dS_smem{P_smem.data + C::Br * C::P_STRIDE, C::Br, C::Bc, C::P_STRIDE};
  float* const L_smem = dS_smem.data + C::Br * C::P_STRIDE;  // [Br]
  float* const D_smem = L_smem + C::Br;                      // [Br]

  const Place<C> at;
  const bool first_half = at.half == 0;
  float Y_reg[C::TK][4 * C::TD];  // half 0: dV tile [Bc, Width]; half 1: dK tile, not scaled
#pragma unroll
  for (int r = 0; r < C::TK; ++r) {
#pragma unroll
    for (int c = 0; c < 4 * C::TD; ++c) Y_reg[r][c] = 0.0f;
  }

  // The tiles of Q from the first query on that sees a key of this tile, for each query head of the group.
  const int first_row = problem.causal ? max(0, col0 - (problem.Nk - problem.Nq)) : 0;
  const int first_tile = first_row / C::Br, end_tile = (problem.Nq + C::Br - 1) / C::Br;
  const int last_head = (h_kv + 1) * problem.group_size() - 1;
  const auto load = [&](int h, int tile) {
    const int row0 = tile * C::Br;
    load_async<C, C::Br>(Q_smem, all.Q.head(b, h), row0, wide);
    load_async<C, C::Br>(dO_smem, all.dO.head(b, h), row0, wide);
    load_async<C::Br>(L_smem, all.L.head_vector(b, h), row0);
    load_async<C::Br>(D_smem, all.D.head_vector(b, h), row0);
  };

  // 1. K, V, and the first tile of Q, dO.
  load_async<C, C::Bc>(K_smem, all.K.head(b, h_kv), col0, wide);
  load_async<C, C::Bc>(V_smem, all.V.head(b, h_kv), col0, wide);
  int h = h_kv * problem.group_size(), tile = first_tile;
  if (tile < end_tile) load(h, tile);
  cp_async_commit();

  while (tile < end_tile && h <= last_head) {
    const int row0 = tile * C::Br;
    cp_async_wait<0>();
    __syncthreads();  // read after write: the tiles of all threads have landed; write after read: nobody reads dS of the tile before

    // 2. Half 0: S = Q K^T, then P. Half 1: dP = dO V^T.
    float X_reg[C::TM][C::TN];
    product_of_rows<C>(X_reg, first_half ? Q_smem : dO_smem, first_half ? K_smem : V_smem, at);
    if (first_half) {
      const bool masked = problem.visible_keys(row0) < col0 + C::Bc;
      finish_scores<C>(X_reg, problem, all.bias, all.bias.values.head(b, h), row0, col0, masked, at);
      store_P<C>(P_smem, X_reg, L_smem, at);
    }
    __syncthreads();  // read after write: half 1 reads P of half 0

    // 3. Half 1: dS = P o (dP - D).
    if (!first_half) store_dS<C>(dS_smem, P_smem, X_reg, D_smem, at);
    __syncthreads();  // read after write: all read dS

    // 4. Half 0: dV += P^T dO. Half 1: dK += dS^T Q.
    add_product_of_columns<C>(Y_reg, first_half ? P_smem : dS_smem, first_half ? dO_smem : Q_smem, at);
    __syncthreads();  // write after read: the next tile overwrites Q, dO, L, D
    const Matrix<float> dQ = all.dQ.head(b, h);
    if (++tile == end_tile) {
      tile = first_tile;
      ++h;
    }
    if (h <= last_head) load(h, tile);
    cp_async_commit();

    // 5. dQ += scale dS K, while the next tile is on its way.
    add_dQ<C>(dQ, row0, problem.scale, dS_smem, K_smem, wide, at);
  }
  cp_async_wait<0>();
  write_gradient<C>((first_half ? all.dV : all.dK).head(b, h_kv), col0, first_half ? 1.0f : problem.scale, Y_reg, wide, at);
}

/// Can four neighbouring elements be read and written as one in all rows of these tensors?
bool rows_are_aligned(const Attention& a) {
  const auto aligned = [&](const TensorRef& t) {
    const bool strides = t.stride[0] % 4 == 0 && t.stride[1] % 4 == 0 && t.stride[2] % 4 == 0;
    return strides && reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0;
  };
  return a.problem.d % 4 == 0 && aligned(a.Q) && aligned(a.K) && aligned(a.V) && aligned(a.dO) && aligned(a.dK) &&
         aligned(a.dV);
}

template <class C>
void start(const Attention& a) {
  const Problem& p = a.problem;
  const Operands all{view<const float>(a.Q), view<const float>(a.K),
                     view<const float>(a.V), view<const float>(a.dO),
                     view<const float>(a.L), view<const float>(a.workspace("D")),
                     view<float>(a.dQ),      view<float>(a.dK),
                     view<float>(a.dV),      bias_of(a)};
  const unsigned blocks = blocks_for(p.Nk, C::Bc) * static_cast<unsigned>(p.B * p.Hkv);
  launch("fa2_backward", {dim3(blocks), dim3(THREADS), C::SHARED_FLOATS * sizeof(float)}, backward_kernel<C>, p, all,
         rows_are_aligned(a));
}

/// A compiled kernel.
struct Compiled {
  int width;
  Tiles tiles;
  std::size_t shared_bytes;
  const char* why;
  void (*start)(const Attention&);
};

template <class C>
constexpr Compiled compiled(const char* why) {
  return {C::Width, {C::Br, C::Bc}, C::SHARED_FLOATS * sizeof(float), why, start<C>};
}

// For each width the fastest first, as measured with --tune on an H200.
constexpr Compiled kernels[] = {
    compiled<Shape<32, 64, 128, 16, 8>>("8 x 8 scores a thread"),
    compiled<Shape<32, 32, 64, 8, 8>>("little shared memory, twice as many blocks"),
    compiled<Shape<64, 64, 128, 16, 8>>("8 x 8 scores and gradients a thread"),
    compiled<Shape<64, 64, 64, 8, 16>>("twice as many blocks, two on an SM"),
    compiled<Shape<64, 32, 32, 8, 16>>("little shared memory"),
    compiled<Shape<96, 64, 64, 8, 8>>("4 x 12 gradients a thread"),
    compiled<Shape<96, 32, 64, 8, 8>>("less shared memory"),
    compiled<Shape<128, 64, 64, 8, 16>>("8 x 8 gradients a thread"),
    compiled<Shape<128, 32, 64, 8, 16>>("less shared memory"),
    compiled<Shape<128, 32, 32, 8, 16>>("twice as many blocks, two on an SM"),
    compiled<Shape<128, 16, 32, 8, 16>>("little shared memory"),
};

/// The kernels for a problem on a device: of the smallest width that holds d and has any whose shared memory the device has.
std::vector<const Compiled*> kernels_for(const Problem& p, const DeviceLimits& limits) {
  std::vector<const Compiled*> fit;
  for (const Compiled& k : kernels) {
    if (k.width < p.d || k.shared_bytes > limits.shared_bytes) continue;
    if (!fit.empty() && fit.front()->width != k.width) break;
    fit.push_back(&k);
  }
  return fit;
}

std::vector<TileChoice> tiles(const Problem& p, Pass pass, const DeviceLimits& limits) {
  if (pass == Pass::forward) return fa2_forward::tiles(p, pass, limits);
  std::vector<TileChoice> choices;
  for (const Compiled* k : kernels_for(p, limits)) choices.push_back({k->tiles, THREADS, k->shared_bytes, k->why});
  return choices;
}

void backward(const Attention& a) {
  const Problem& p = a.problem;
  launch("prepare", {dim3(blocks_for(p.Nq, THREADS / WARP) * static_cast<unsigned>(p.B * p.H)), dim3(THREADS)}, prepare_kernel,
         p, view<const float>(a.O), view<const float>(a.dO), view<float>(a.workspace("D")), view<float>(a.dQ));
  for (const Compiled* k : kernels_for(p, a.limits)) {
    if (k->tiles == a.tiles) return k->start(a);
  }
}

std::vector<WorkspaceSpec> workspace(const Problem& p, Pass pass) {
  if (pass == Pass::forward) return {};
  return {{"D", {p.B, p.H, p.Nq, 1}}};
}

const Variant variant{.name = "one_kernel",
                      .idea = "five products; dQ summed by atomics",
                      .forward = fa2_forward::forward,
                      .backward = backward,
                      .workspace = workspace,
                      .refuse = fa2_forward::refuse,
                      .tiles = tiles,
                      .atomic_dQ = true};

}  // namespace
}  // namespace flash::fa2_backward
