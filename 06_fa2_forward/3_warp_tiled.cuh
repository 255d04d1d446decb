// 06 FlashAttention-2, forward, step 3: what a matrix product does to be fast.
//
//   S = scale Q_i K_j^T + bias, masked                      [Br, d] x [d, Bc]          (6.1)
//   m_new = max(m, rowmax S),   alpha = e^(m - m_new)                                  (6.2)
//   P = e^(S - m_new),   l = alpha l + rowsum P                                        (6.3)
//   O = alpha O + P V_j                                     [Br, Bc] x [Bc, d]         (6.4)
//   at the end  O = O / l,   L = m + ln l                                              (6.5)
//
// New since step 2, which computes the same on the same register tiles:
// - Operands whose 8 neighbouring numbers a thread needs at one step of a product lie side by side: Q and P are stored transposed, so
//   that two float4 bring them. A product of 8 x 8 takes 4 loads for 64 multiply-adds.
// - K in shared memory is swizzled, P padded: the lanes of a warp meet different banks.
// - cp.async: V_j is on its way while Q K^T is computed, K_(j+1) while P V is. No register holds what is copied.
// - scale is multiplied into Q once; e^x is 2^(x log2 e), one instruction.
// - Tiles in which every pair is visible need no mask; tiles that nobody sees are not visited; the longest blocks start first.
//
// Grid: Tr*B*H. Block: warps; a warp owns whole rows, so that maximum and sum of a row stay in the warp. Its lanes stand in LY rows of
//   LX: lane (y, x) holds rows 4y..4y+3 of each 4 LY, columns x, x + LX, ... of S, and columns 4x..4x+3 of each 4 LX of O.
// HBM: Q once, K and V once for each tile of Q that sees them, O and L written once (6.6); of the bias every pair of the visited tiles,
//   also those that a mask hides.  Workspace: none.
// Shapes: all; d is padded with zeros to 32, 64, 96 or 128.
#pragma once

#include "common/device/device.cuh"
#include "common/device/ptx.cuh"
#include "common/device/warp.cuh"

#include <algorithm>

namespace flash::fa2_forward {
namespace {

constexpr float LOG2_E = 1.44269504f;
// Steps of the inner dimension that the compiler sees at once, four columns of d each in Q K^T, a key each in P V: enough to begin loads
// long before their use.
constexpr int UNROLL_QK = 8, UNROLL_PV = 16;

/// The tile sizes of one compiled kernel, and who holds what. Width: d, rounded up. Chunk: columns of P in shared memory at a time.
template <int Width_, int Br_, int Bc_, int RowsOfThread, int LanesOfRow, int Blocks = 1>
struct Shape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_, Chunk = Bc < 64 ? Bc : 64;
  static constexpr int LX = LanesOfRow, LY = WARP / LX;  // lanes side by side, and above each other
  static constexpr int TM = RowsOfThread;                // rows of S and O that a thread holds
  static constexpr int TN = Bc / LX;                     // columns of S
  static constexpr int TD = Width / (4 * LX);            // columns of O, in fours
  static constexpr int WARP_ROWS = TM * LY;
  static constexpr int THREADS = Br / WARP_ROWS * WARP;
  static constexpr int BLOCKS = Blocks;  // of an SM, to share its registers
  // A column of P begins 4 banks after the one before: 8 lanes that write 16 bytes to a column each meet all 32 banks once.
  static constexpr int P_STRIDE = Br + 4;
  static constexpr int SHARED_FLOATS = (Br + 2 * Bc) * Width + Chunk * P_STRIDE;

  static_assert(Br % WARP_ROWS == 0, "a warp owns whole rows");
  static_assert(TM % 4 == 0, "rows come in fours, the float4 of the transposed tiles");
  static_assert(LX % 8 == 0 && Chunk % LX == 0 && Bc % Chunk == 0,
                "columns of S are dealt out evenly; the swizzle has a period of 8");
  static_assert(Width % (4 * LX) == 0, "columns of O are dealt out evenly, in fours");
};

/// Where a thread stands in its tile.
template <class C>
struct Place {
  int x = threadIdx.x % C::LX;
  int first_row = threadIdx.x / WARP * C::WARP_ROWS + 4 * (threadIdx.x % WARP / C::LX);

  __device__ int rows(int q) const { return first_row + 4 * C::LY * q; }  // first of the thread's q-th four rows
  __device__ int row(int r) const { return rows(r / 4) + r % 4; }
  __device__ int score_col(int c) const { return x + C::LX * c; }          // the thread's c-th column of S
  __device__ int output_cols(int g) const { return 4 * (x + C::LX * g); }  // first of its g-th four columns of O
};

/// Where column `col` of row `row` of K lies in its row: fours of columns change places with the row. 8 lanes that read the same column of 8
/// rows in a row, 128 bytes or a multiple apart, then meet all 32 banks once.
__device__ inline int swizzled(int row, int col) { return col ^ (4 * (row % 8)); }

/// Starts copying rows row0, row0 + 1, ... of M to a tile of Bc rows; zeros stand beyond its last row and column. A thread stays in its
/// four columns, so that its addresses advance by a constant.
template <class C, bool Swizzle>
__device__ void load_async(const SharedMatrix<float>& tile, const Matrix<const float>& M, int row0, bool wide) {
  constexpr int quads = C::Width / 4, rows_at_once = C::THREADS / quads, steps = (C::Bc + rows_at_once - 1) / rows_at_once;
  const int col = 4 * (threadIdx.x % quads);
  const int first = threadIdx.x / quads;
  if (C::THREADS % quads != 0 && first >= rows_at_once) return;  // Width 96: some threads have nothing to copy
  if (wide && row0 + C::Bc <= M.rows) {
    const bool exists = col < M.cols;
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const int row = first + step * rows_at_once;
      if (C::Bc % rows_at_once != 0 && row >= C::Bc) break;
      cp_async_zfill<16>(tile.address(row, Swizzle ? swizzled(row, col) : col), M.address(row0 + row, exists ? col : 0),
                         exists ? 16 : 0);
    }
  } else {  // the last rows, or rows that do not begin at multiples of 16 bytes: element by element
#pragma unroll 1
    for (int row = first; row < C::Bc; row += rows_at_once) {
#pragma unroll 1
      for (int c = 0; c < 4; ++c) {
        const bool exists = row0 + row < M.rows && col + c < M.cols;
        cp_async_zfill<4>(tile.address(row, (Swizzle ? swizzled(row, col) : col) + c),
                          M.address(exists ? row0 + row : 0, exists ? col + c : 0), exists ? 4 : 0);
      }
    }
  }
}

/// scale Q_i, transposed: Qt(k, row). Zeros beyond the last row and column. The lanes of a warp read a column, so that they write side by
/// side; their sectors stay in L1 until the next columns are read.
template <class C>
__device__ void load_transposed(const SharedMatrix<float>& Qt, const Matrix<const float>& Q, int row0, float scale) {
  for (int e = threadIdx.x; e < C::Br * C::Width; e += C::THREADS) {
    const int row = e % C::Br, k = e / C::Br;
    Qt(k, row) = row0 + row < Q.rows && k < Q.cols ? scale * Q(row0 + row, k) : 0.0f;
  }
}

template <int N>
__device__ inline void unpack(float (&to)[N], int first, const float4& from) {
  to[first] = from.x;
  to[first + 1] = from.y;
  to[first + 2] = from.z;
  to[first + 3] = from.w;
}

/// One step of the inner dimension: C += a b^T   [M] x [N].  To and fro, so that each multiply-add shares an operand with the one before
/// it: that one is at hand, while three from the register file seem to take a second cycle (chapter 06, 6.10).
template <int M, int N>
__device__ inline void add_outer_product(float (&C)[M][N], const float (&a)[M], const float (&b)[N]) {
#pragma unroll
  for (int c = 0; c < N; ++c) {
#pragma unroll
    for (int n = 0; n < M; ++n) {
      const int r = c % 2 == 0 ? n : M - 1 - n;
      C[r][c] += a[r] * b[c];
    }
  }
}

/// (6.1)  S_reg = Q K^T: this thread's TM x TN scores.
template <class C>
__device__ void scores(float (&S_reg)[C::TM][C::TN], const SharedMatrix<const float>& Qt, const SharedMatrix<const float>& K,
                       const Place<C>& at) {
#pragma unroll
  for (int r = 0; r < C::TM; ++r) {
#pragma unroll
    for (int c = 0; c < C::TN; ++c) S_reg[r][c] = 0.0f;
  }
#pragma unroll UNROLL_QK
  for (int k = 0; k < C::Width; k += 4) {
    float K_reg[4][C::TN];  // four columns of the thread's rows of K
#pragma unroll
    for (int c = 0; c < C::TN; ++c) {
      const float4 four = K.template as<float4>(at.score_col(c), swizzled(at.x, k));  // LX is a multiple of 8
      K_reg[0][c] = four.x, K_reg[1][c] = four.y, K_reg[2][c] = four.z, K_reg[3][c] = four.w;
    }
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      float Q_reg[C::TM];
#pragma unroll
      for (int q = 0; q < C::TM / 4; ++q) unpack(Q_reg, 4 * q, Qt.template as<float4>(k + step, at.rows(q)));
      add_outer_product(S_reg, Q_reg, K_reg[step]);
    }
  }
}

/// (6.4)  O_reg += P V for the Chunk keys from key0 on.
template <class C>
__device__ void accumulate_output(float (&O_reg)[C::TM][4 * C::TD], const SharedMatrix<const float>& Pt,
                                  const SharedMatrix<const float>& V, int key0, const Place<C>& at) {
#pragma unroll UNROLL_PV
  for (int k = 0; k < C::Chunk; ++k) {
    float P_reg[C::TM], V_reg[4 * C::TD];
#pragma unroll
    for (int q = 0; q < C::TM / 4; ++q) unpack(P_reg, 4 * q, Pt.template as<float4>(k, at.rows(q)));
#pragma unroll
    for (int g = 0; g < C::TD; ++g) unpack(V_reg, 4 * g, V.template as<float4>(key0 + k, at.output_cols(g)));
    add_outer_product(O_reg, P_reg, V_reg);
  }
}

/// Adds the bias where there are a query and a key.
template <class C>
__device__ void add_bias(float (&S_reg)[C::TM][C::TN], const Bias& bias, const Matrix<const float>& values, int row0, int col0,
                         const Place<C>& at, int Nq, int Nk) {
  if (bias.kind == BiasKind::alibi) {
    const float slope = values(0, 0);
    const int first = row0 + bias.diagonal - col0;
#pragma unroll
    for (int r = 0; r < C::TM; ++r) {
#pragma unroll
      for (int c = 0; c < C::TN; ++c) {
        S_reg[r][c] -= slope * fabsf(static_cast<float>(first + at.row(r) - at.score_col(c)));
      }
    }
  } else {
#pragma unroll
    for (int r = 0; r < C::TM; ++r) {
      const int i = row0 + at.row(r);
#pragma unroll
      for (int c = 0; c < C::TN; ++c) {
        const int j = col0 + at.score_col(c);
        if (i < Nq && j < Nk) S_reg[r][c] += values(i, j);
      }
      asm volatile("" ::: "memory");  // a row at a time: for the values of all rows at once there are not enough registers
    }
  }
}

/// Keys that a query does not see, or that do not exist, score -inf.
template <class C>
__device__ void mask(float (&S_reg)[C::TM][C::TN], const Problem& problem, int row0, int col0, const Place<C>& at) {
#pragma unroll
  for (int r = 0; r < C::TM; ++r) {
    const int visible = problem.visible_keys(row0 + at.row(r)) - col0;
#pragma unroll
    for (int c = 0; c < C::TN; ++c) {
      if (at.score_col(c) >= visible) S_reg[r][c] = -INFINITY;
    }
  }
}

/// (6.2), (6.3)  S_reg becomes P; m, and l of this lane's columns, are brought up to date; O_reg is rescaled.
template <class C>
__device__ void online_softmax(float (&S_reg)[C::TM][C::TN], float (&O_reg)[C::TM][4 * C::TD], float (&m)[C::TM],
                               float (&l)[C::TM]) {
#pragma unroll
  for (int r = 0; r < C::TM; ++r) {
    float m_new = m[r];
#pragma unroll
    for (int c = 0; c < C::TN; ++c) m_new = fmaxf(m_new, S_reg[r][c]);
#pragma unroll
    for (int distance = C::LX / 2; distance > 0; distance /= 2) {
      m_new = fmaxf(m_new, __shfl_xor_sync(ALL_LANES, m_new, distance));
    }
    const float shift = m_new == -INFINITY ? 0.0f : m_new;  // no visible key yet: e^(-inf - 0) = 0, not NaN
    const float alpha = exp2_approx((m[r] - shift) * LOG2_E);
    m[r] = m_new;
    l[r] *= alpha;
#pragma unroll
    for (int c = 0; c < C::TN; ++c) {
      S_reg[r][c] = exp2_approx((S_reg[r][c] - shift) * LOG2_E);
      l[r] += S_reg[r][c];
    }
#pragma unroll
    for (int c = 0; c < 4 * C::TD; ++c) O_reg[r][c] *= alpha;
  }
}

/// P, transposed, of the Chunk keys from key0 on.
template <class C>
__device__ void store_transposed(const SharedMatrix<float>& Pt, const float (&P_reg)[C::TM][C::TN], int key0,
                                 const Place<C>& at) {
#pragma unroll
  for (int c = 0; c < C::TN; ++c) {
    if (c * C::LX / C::Chunk != key0 / C::Chunk) continue;
#pragma unroll
    for (int q = 0; q < C::TM / 4; ++q) {
      Pt.template as<float4>(at.score_col(c) - key0, at.rows(q)) =
          make_float4(P_reg[4 * q][c], P_reg[4 * q + 1][c], P_reg[4 * q + 2][c], P_reg[4 * q + 3][c]);
    }
  }
}

/// (6.5)  Normalises and writes the thread's part of O and L.
template <class C>
__device__ void write_output(const float (&O_reg)[C::TM][4 * C::TD], const float (&m)[C::TM], const float (&l)[C::TM],
                             const Matrix<float>& O, const Vector<float>& L, int row0, bool wide, const Place<C>& at) {
#pragma unroll
  for (int r = 0; r < C::TM; ++r) {
    float sum = l[r];  // of this lane's columns; then of the row
#pragma unroll
    for (int distance = C::LX / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;  // no visible key: O = 0
    const int i = row0 + at.row(r);
    if (i >= O.rows) continue;
    if (at.x == 0) L(i) = m[r] + logf(sum);
#pragma unroll
    for (int g = 0; g < C::TD; ++g) {
      const float* const o = &O_reg[r][4 * g];
      const int col = at.output_cols(g);
      if (wide && col < O.cols) {
        O.template as<float4>(i, col) = make_float4(o[0] * inverse, o[1] * inverse, o[2] * inverse, o[3] * inverse);
      } else {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          if (col + c < O.cols) O(i, col + c) = o[c] * inverse;
        }
      }
    }
  }
}

template <class C>
__global__ void __launch_bounds__(C::THREADS, C::BLOCKS)
    forward_kernel(Problem problem, Tensor<const float> Q_all, Tensor<const float> K_all, Tensor<const float> V_all, Bias bias,
                   Tensor<float> O_all, Tensor<float> L_all, bool wide) {
  // Under a causal mask the last rows see most keys: they start first, so that no long block starts when the others are done.
  const int heads = problem.B * problem.H, Tr = gridDim.x / heads;
  const int tile = problem.causal ? Tr - 1 - blockIdx.x / heads : blockIdx.x / heads;
  const int b = blockIdx.x % heads / problem.H;
  const int h = blockIdx.x % heads % problem.H;
  const int row0 = tile * C::Br;
  const Matrix<const float> K = K_all.head(b, problem.kv_head(h));
  const Matrix<const float> V = V_all.head(b, problem.kv_head(h));

  float* const shared = dynamic_shared<float>(C::SHARED_FLOATS);
  const SharedMatrix<float> Qt_smem{shared, C::Width, C::Br, C::Br};
  const SharedMatrix<float> K_smem{Qt_smem.data + C::Width * C::Br, C::Bc, C::Width, C::Width};
  const SharedMatrix<float> V_smem{K_smem.data + C::Bc * C::Width, C::Bc, C::Width, C::Width};
  const SharedMatrix<float> Pt_smem{V_smem.data + C::Bc * C::Width, C::Chunk, C::Br, C::P_STRIDE};

  const Place<C> at;
  float O_reg[C::TM][4 * C::TD];  // O tile [Br, Width], not normalised
  float m[C::TM], l[C::TM];       // l: of this lane's columns alone
#pragma unroll
  for (int r = 0; r < C::TM; ++r) {
    m[r] = -INFINITY;
    l[r] = 0.0f;
#pragma unroll
    for (int c = 0; c < 4 * C::TD; ++c) O_reg[r][c] = 0.0f;
  }

  // Keys [0, seen_by_all) are seen by every row of the tile, keys from seen_by_any on by none.
  const int seen_by_all = problem.visible_keys(row0);
  const int seen_by_any = problem.visible_keys(min(row0 + C::Br, problem.Nq) - 1);
  const int plain_tiles = seen_by_all / C::Bc;
  const int Tc = (seen_by_any + C::Bc - 1) / C::Bc;

  // 1. Q and the first tile of K.
  if (Tc > 0) load_async<C, true>(K_smem, K, 0, wide);
  cp_async_commit();
  load_transposed<C>(Qt_smem, Q_all.head(b, h), row0, problem.scale);

  for (int j = 0; j < Tc; ++j) {
    const int col0 = j * C::Bc;
    cp_async_wait<0>();
    __syncthreads();  // read after write: K_j and Q of all threads have landed; write after read: no warp reads V_(j-1) any more
    load_async<C, false>(V_smem, V, col0, wide);
    cp_async_commit();

    // 2. S = Q K^T, and the softmax of its rows.
    float S_reg[C::TM][C::TN];  // S tile [Br, Bc], then P
    scores<C>(S_reg, Qt_smem, K_smem, at);
    if (bias.kind != BiasKind::none) {
      add_bias<C>(S_reg, bias, bias.values.head(b, h), row0, col0, at, problem.Nq, problem.Nk);
    }
    if (j >= plain_tiles) mask<C>(S_reg, problem, row0, col0, at);
    online_softmax<C>(S_reg, O_reg, m, l);

    cp_async_wait<0>();
    __syncthreads();  // read after write: V_j of all threads has landed; write after read: no warp reads K_j any more
    if (j + 1 < Tc) load_async<C, true>(K_smem, K, col0 + C::Bc, wide);
    cp_async_commit();

    // 3. O += P V. Each lane needs other columns of P than it holds: they go through shared memory, within the warp.
#pragma unroll
    for (int key0 = 0; key0 < C::Bc; key0 += C::Chunk) {
      if (key0 > 0) __syncwarp();  // write after read: lanes that lag still read the chunk before
      store_transposed<C>(Pt_smem, S_reg, key0, at);
      __syncwarp();  // read after write: a lane reads what the others of its warp have written
      accumulate_output<C>(O_reg, Pt_smem, V_smem, key0, at);
    }
  }
  write_output<C>(O_reg, m, l, O_all.head(b, h), L_all.head_vector(b, h), row0, wide, at);
}

/// Can four neighbouring elements be read and written as one in all rows of these tensors?
bool rows_are_aligned(const Attention& a) {
  const auto aligned = [&](const TensorRef& t) {
    const bool strides = t.stride[0] % 4 == 0 && t.stride[1] % 4 == 0 && t.stride[2] % 4 == 0;
    return strides && reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0;
  };
  return a.problem.d % 4 == 0 && aligned(a.Q) && aligned(a.K) && aligned(a.V) && aligned(a.O);
}

template <class C>
void start(const Attention& a) {
  const Problem& p = a.problem;
  const unsigned blocks = blocks_for(p.Nq, C::Br) * static_cast<unsigned>(p.B * p.H);
  launch("fa2_forward", {dim3(blocks), dim3(C::THREADS), C::SHARED_FLOATS * sizeof(float)}, forward_kernel<C>, p,
         view<const float>(a.Q), view<const float>(a.K), view<const float>(a.V), bias_of(a), view<float>(a.O), view<float>(a.L),
         rows_are_aligned(a));
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

// For each width the fastest first, as measured with --tune on an H200.
constexpr Compiled kernels[] = {
    compiled<Shape<32, 128, 64, 8, 8, 2>>("8 x 8 scores a thread, two blocks on an SM"),
    compiled<Shape<32, 64, 32, 4, 8, 4>>("twice as many blocks"),
    compiled<Shape<64, 128, 64, 8, 8, 2>>("8 x 8 scores and outputs a thread, two blocks on an SM"),
    compiled<Shape<64, 64, 64, 4, 8, 3>>("twice as many blocks, three on an SM"),
    compiled<Shape<64, 64, 32, 4, 8, 3>>("little shared memory"),
    compiled<Shape<96, 128, 64, 4, 8>>("4 x 12 outputs a thread; K and V move half as often"),
    compiled<Shape<96, 64, 64, 4, 8, 2>>("twice as many blocks, two blocks on an SM"),
    compiled<Shape<96, 64, 32, 4, 8, 3>>("little shared memory"),
    compiled<Shape<128, 128, 128, 8, 16>>("8 x 8 scores and outputs a thread"),
    compiled<Shape<128, 128, 64, 8, 16>>("less shared memory"),
    compiled<Shape<128, 64, 32, 4, 8, 2>>("twice as many blocks, two on an SM"),
    compiled<Shape<128, 32, 32, 4, 8>>("little shared memory"),
};

/// d padded to a width that is compiled.
int width_of(int d) { return (d + 31) / 32 * 32; }

/// Those whose shared memory the device has. If the first has too few tiles of Q to give each SM a block, the first that has enough comes
/// before it, or else the one with most.
std::vector<TileChoice> tiles(const Problem& p, Pass, const DeviceLimits& limits) {
  std::vector<TileChoice> fit;
  for (const Compiled& k : kernels) {
    if (k.width == width_of(p.d) && k.shared_bytes <= limits.shared_bytes)
      fit.push_back({k.tiles, k.threads, k.shared_bytes, k.why});
  }
  const auto blocks = [&](const TileChoice& choice) { return std::int64_t{blocks_for(p.Nq, choice.tiles.Br)} * p.B * p.H; };
  const auto enough = std::find_if(fit.begin(), fit.end(), [&](const auto& c) { return blocks(c) >= limits.multiprocessors; });
  const auto best = enough != fit.end() ? enough : std::max_element(fit.begin(), fit.end(), [&](const auto& a, const auto& b) {
    return blocks(a) < blocks(b);
  });
  if (best != fit.end()) std::rotate(fit.begin(), best, best + 1);
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

const Variant variant{.name = "warp_tiled",
                      .idea = "transposed and swizzled tiles, cp.async, exp2, masked tiles apart",
                      .forward = forward,
                      .refuse = refuse,
                      .tiles = tiles};

}  // namespace
}  // namespace flash::fa2_forward
