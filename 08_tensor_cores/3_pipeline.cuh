// 08 Tensor cores, forward, step 3: copies that nobody waits for, and P that never leaves the registers.
//
//   S = Q_i K_j^T                                          [Br, d] x [d, Bc]           (8.1)
//   m_new = max(m, rowmax S),   alpha = 2^(c m - c m_new)  with c = scale log2 e       (6.2)
//   P = 2^(c S - c m_new),   l = alpha l + rowsum P                                    (8.2)
//   O = alpha O + P V_j                                    [Br, Bc] x [Bc, d]          (8.4)
//   at the end  O = O / l,   L = scale m + ln l                                        (8.5)
//
// New since step 2, which computes the same on the same tiles:
// - cp.async copies K and V of the next tile while this one is computed: two tiles of each, one barrier a tile.
// - The accumulators of S are what the A operand of P V wants: rounded to T they are used as they lie. P needs no shared memory.
// - scale and log2 e are folded into the exponent: one fused multiply-add and one ex2 for each element of P.
// - Only tiles in which not every pair is visible are masked.
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
  static constexpr int BLOCKS = Blocks;                         // of an SM, to share its registers
  static constexpr int SHARED_NUMBERS = Width * (Br + 4 * Bc);  // Q, and two tiles each of K and V
  static constexpr int MIN_SM = min_sm(Width, TM, SHARED_NUMBERS);

  static_assert(Br % (16 * TM) == 0 && Bc % 16 == 0 && Width % 32 == 0, "whole fragments");
};

/// (8.1)  S_reg = Q K^T: the warp's 16 TM rows.
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

/// (6.2), (8.2)  S_reg becomes P; m, and l of this lane's columns, are brought up to date; O_reg is rescaled.
template <class C>
__device__ void online_softmax(float (&S_reg)[C::TM][C::TN][4], float (&O_reg)[C::TM][C::TD][4], float (&m)[C::TM][2],
                               float (&l)[C::TM][2], float c, bool scale_first) {
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
      const float alpha = exp2_approx((m[i][half] - shift) * c);
      m[i][half] = m_new;
      l[i][half] *= alpha;
      // Where c m is large, the rounding of (8.2) is not small: it is added to an exponent. And a bias may be as far off as -3.4e38, which
      // overflows when it is multiplied by log2 e. Then m is subtracted first.
      const bool subtract_first = scale_first || fabsf(shift * c) > 0x1p20f;
      const float shift_c = subtract_first ? 0.0f : shift * c;
      if (subtract_first) {
#pragma unroll
        for (int n = 0; n < C::TN; ++n) {
          S_reg[i][n][2 * half] -= shift;
          S_reg[i][n][2 * half + 1] -= shift;
        }
      }
#pragma unroll
      for (int n = 0; n < C::TN; ++n) {
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          S_reg[i][n][e] = exp2_approx(S_reg[i][n][e] * c - shift_c);  // one fused multiply-add, one ex2
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

/// (8.4)  O_reg += P V. The accumulators of S, rounded to T, are the A operands: of keys 16 k.. those of tiles 2k and 2k + 1.
template <class T, class C>
__device__ void accumulate_output(float (&O_reg)[C::TM][C::TD][4], const float (&P_reg)[C::TM][C::TN][4],
                                  const SharedMatrix<const T>& V, const Place<C::TM>& at) {
  // Two B operands of V, which needs to be transposed, take their four 8 x 8 matrices as an A operand does.
  const int V_row = at.lane % 16, V_col = 8 * (at.lane / 16);
#pragma unroll
  for (int k = 0; k < C::Bc / 16; ++k) {
    unsigned A[C::TM][4];
#pragma unroll
    for (int i = 0; i < C::TM; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float* const two = &P_reg[i][2 * k + r / 2][2 * (r % 2)];
        A[i][r] = pack<T>(two[0], two[1]);
      }
    }
#pragma unroll
    for (int n = 0; n < C::TD; n += 2) {
      unsigned B[4];  // of columns 8n..8n+7 and 8n+8..8n+15
      ldmatrix_x4_trans(B, V.address(V_row + 16 * k, swizzled_col(C::Width, V_row, 8 * n + V_col)));
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
  const auto K_smem = [&](int stage) {  // two tiles of K after Q, then two of V
    return SharedMatrix<T>{shared + (C::Br + stage * C::Bc) * C::Width, C::Bc, C::Width, C::Width};
  };
  const auto V_smem = [&](int stage) { return K_smem(2 + stage); };
  const Swizzle<C::Width> swizzle;

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

  // Where scores are scaled before the maximum is taken, c and L have no scale: with a bias, with a scale that is not positive, which would
  // turn the maximum into a minimum, and with one so large that c might overflow.
  const bool scale_first = bias.kind != BiasKind::none || !(problem.scale > 0.0f && problem.scale < 1e30f);
  const float factor = scale_first ? 1.0f : problem.scale;
  const float c = factor * LOG2_E;

  // Keys [0, seen_by_all) are seen by every row of the tile, keys from seen_by_any on by none.
  const int seen_by_all = problem.visible_keys(row0);
  const int seen_by_any = problem.visible_keys(min(row0 + C::Br, problem.Nq) - 1);
  const int plain_tiles = seen_by_all / C::Bc;
  const int Tc = (seen_by_any + C::Bc - 1) / C::Bc;
  Copier<T, C::THREADS, C::Bc, C::Width> copy_K(K, 0), copy_V(V, 0);
  const auto load_next = [&](int stage) {
    copy_K.load_async(K_smem(stage), C::Bc, swizzle);
    copy_V.load_async(V_smem(stage), C::Bc, swizzle);
  };

  // 1. Q and the first tiles of K and V.
  if (Tc > 0) {
    Copier<T, C::THREADS, C::Br, C::Width>(Q_all.head(b, h), row0).load_async(Q_smem, 0, swizzle);
    load_next(0);
  }
  cp_async_commit();

  for (int j = 0; j < Tc; ++j) {
    // 2. K and V have landed; those of the next tile start.
    const int col0 = j * C::Bc, stage = j % 2;
    cp_async_wait<0>();
    __syncthreads();  // read after write: Q, K_j, V_j of all threads have landed; write after read: no warp reads K_(j-1), V_(j-1) any more
    if (j + 1 < Tc) load_next(1 - stage);
    cp_async_commit();

    // 3. S = Q K^T, and the softmax of its rows.
    float S_reg[C::TM][C::TN][4];  // S tile [Br, Bc], then P
    scores<T, C>(S_reg, Q_smem, K_smem(stage), at);
    if (scale_first) {
      scale_and_add_bias(S_reg, problem, bias, bias.values.head(b, h), row0, col0, at);
    }
    if (j >= plain_tiles) mask(S_reg, problem, row0, col0, at);
    online_softmax<C>(S_reg, O_reg, m, l, c, scale_first);

    // 4. O += P V.
    accumulate_output<T, C>(O_reg, S_reg, V_smem(stage), at);
  }
  write_output(Q_smem, O_reg, m, l, factor, O_all.head(b, h), L_all.head_vector(b, h), row0, at, swizzle);
}

template <class T, class C>
void start_forward(const Attention& a) {
  const Problem& p = a.problem;
  const unsigned blocks = blocks_for(p.Nq, C::Br) * static_cast<unsigned>(p.B * p.H);
  launch("tensor_pipeline", {dim3(blocks), dim3(C::THREADS), C::SHARED_NUMBERS * sizeof(T)}, forward_kernel<T, C>, p,
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
    compiled<Shape<256, 32, 16, 1, 2>>("little shared memory"),
};

std::vector<TileChoice> tiles(const Problem& p, Pass, const DeviceLimits& limits) { return choices(kernels, p, limits); }

void forward(const Attention& a) { start(kernels, a); }

const Variant variant{.name = "pipeline",
                      .idea = "cp.async into two tiles of K and V, P stays in registers, exp2, masked tiles apart",
                      .forward = forward,
                      .workspace = forward_workspace,
                      .refuse = refuse_forward,
                      .tiles = tiles,
                      .dtypes = {Dtype::fp16, Dtype::bf16},
                      .max_head_dim = 256,
                      .refuse_on = refuse_on};

}  // namespace
}  // namespace flash::tensor_cores
