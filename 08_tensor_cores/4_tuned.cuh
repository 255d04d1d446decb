// 08 Tensor cores, forward, step 4: fewer instructions beside the products.
//
//   S = Q_i K_j^T                                          [Br, d] x [d, Bc]           (8.1)
//   P = 2^(c S - c m)        with c = scale log2 e         [Br, Bc]                    (8.2)
//   l = l + rowsum P                                                                   (8.3)
//   O = O + P V_j                                          [Br, Bc] x [Bc, d]          (8.4)
//   at the end  O = O / l,   L = scale m + ln l                                        (8.5)
//
// New since step 3, which computes the same:
// - The maximum is only looked for when it must be. Any m that keeps P from overflowing gives the same O and L, because it cancels in
//   (8.5). So m stays what it was as long as no row of P sums to more than OVERFLOW; only else it becomes the true maximum, O and l are
//   rescaled as in (6.2), and P is computed again. In most tiles there is no maximum, no shuffle and no rescaling.
// - Keys are visited from the last to the first: under a causal mask, and with ALiBi, the largest scores tend to come first.
// - Tile sizes for each width, Q in registers where they suffice.
// - Blocks that run at the same time read the K and V of few heads, so that these stay in L2.
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
  static constexpr bool Q_STAYS = TK * TM * 4 <= 32;            // registers that all of a warp's Q takes
  static constexpr int SHARED_NUMBERS = Width * (Br + 4 * Bc);  // Q, and two tiles each of K and V
  static constexpr int MIN_SM = min_sm(Width, TM, SHARED_NUMBERS);

  static_assert(Br % (16 * TM) == 0 && Bc % 16 == 0 && Width % 32 == 0, "whole fragments");
};

/// The largest sum of a lane's part of a row of P at which m may stay. P itself is then no larger, far from the 65504 of fp16.
constexpr float OVERFLOW = 1024.0f;

/// Where a lane points ldmatrix in a swizzled tile: `offset` bytes from the start of shared memory to the chunk of its row in depth step 0.
/// Other fragments begin at multiples of 16 rows, where the swizzle repeats: a constant is added. Other depth steps have other chunks of
/// the same row: some bits of the address are flipped, since the swizzle is an exclusive or. So one number serves all fragments.
template <int Width>
struct LaneOfMatrix {
  static constexpr int PERIOD = Width % 64 == 0 ? 128 : 64;  // bytes among which the swizzle exchanges chunks
  int offset;

  /// In a tile that begins at number `start` of shared memory; at depth step 0 the lane's chunk is that of (row, col).
  /// Opaque, so that it is kept and not computed again in each tile.
  __device__ LaneOfMatrix(int start, int row, int col)
      : offset(opaque(2 * (start + row * Width + swizzled_col(Width, row, col)))) {}

  /// The chunk in the fragment that begins `rows` rows further down, at depth step k.
  template <class T>
  __device__ const void* chunk(const T* shared, int rows, int k) const {
    const int flipped = 32 * k % PERIOD, added = 32 * k - flipped;
    return reinterpret_cast<const char*>(shared) + (offset ^ flipped) + (added + 2 * rows * Width);
  }

  /// The same chunks of another tile, `numbers` further on.
  __device__ LaneOfMatrix moved(int numbers) const {
    LaneOfMatrix there = *this;
    there.offset += 2 * numbers;
    return there;
  }
};

/// The A operands of a warp's Q: of all depth steps, or of one at a time.
template <class C>
using Queries = unsigned[C::Q_STAYS ? C::TK : 1][C::TM][4];

/// The A operands of depth step k: 16 x 16 of each of the warp's tiles of rows of Q.
template <class T, class C>
__device__ inline void load_queries(unsigned (&Q_reg)[C::TM][4], const T* shared, const LaneOfMatrix<C::Width>& Q_lane, int k) {
#pragma unroll
  for (int i = 0; i < C::TM; ++i) ldmatrix_x4(Q_reg[i], Q_lane.chunk(shared, 16 * i, k));
}

/// (8.1)  S_reg = Q K^T: the warp's 16 TM rows.
template <class T, class C>
__device__ void scores(float (&S_reg)[C::TM][C::TN][4], Queries<C>& Q_reg, const T* shared,
                       const LaneOfMatrix<C::Width>& Q_lane, const LaneOfMatrix<C::Width>& K_lane) {
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
    unsigned(&A)[C::TM][4] = Q_reg[C::Q_STAYS ? k : 0];
    if (!C::Q_STAYS) load_queries<T, C>(A, shared, Q_lane, k);
#pragma unroll
    for (int n = 0; n < C::TN; n += 2) {
      unsigned K_reg[4];  // B operands of keys 8n..8n+7 and 8n+8..8n+15
      ldmatrix_x4(K_reg, K_lane.chunk(shared, 8 * n, k));
#pragma unroll
      for (int i = 0; i < C::TM; ++i) {
        add_mma<T>(S_reg[i][n], A[i], K_reg[0], K_reg[1]);
        add_mma<T>(S_reg[i][n + 1], A[i], K_reg[2], K_reg[3]);
      }
    }
  }
}

/// (6.2)  m becomes the largest score so far, l and O_reg are rescaled. Does every row of the warp have a maximum now?
template <class C>
__device__ bool raise_maximum(float (&m)[C::TM][2], float (&l)[C::TM][2], float (&O_reg)[C::TM][C::TD][4],
                              const float (&S_reg)[C::TM][C::TN][4], float c) {
  bool found = true;
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
      found = found && m_new != -INFINITY;
      m[i][half] = m_new;
      l[i][half] *= alpha;
#pragma unroll
      for (int n = 0; n < C::TD; ++n) {
        O_reg[i][n][2 * half] *= alpha;
        O_reg[i][n][2 * half + 1] *= alpha;
      }
    }
  }
  return __all_sync(ALL_LANES, found);
}

/// S_reg -= m. Where c m is large, the rounding of (8.2) is not small: it is added to an exponent. Where m is as far off as a bias of -3.4e38,
/// c m overflows.
template <class C>
__device__ void subtract_maximum(float (&S_reg)[C::TM][C::TN][4], const float (&m)[C::TM][2]) {
#pragma unroll
  for (int i = 0; i < C::TM; ++i) {
#pragma unroll
    for (int n = 0; n < C::TN; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) S_reg[i][n][e] -= m[i][e / 2] == -INFINITY ? 0.0f : m[i][e / 2];
    }
  }
}

/// (8.2)  S_reg becomes P; sum: of this lane's columns. Does P fit, in all rows of the warp? `subtracted`: S_reg is relative to m already.
template <class C>
__device__ bool exponentiate(float (&S_reg)[C::TM][C::TN][4], float (&sum)[C::TM][2], const float (&m)[C::TM][2], float c,
                             bool subtracted) {
  bool fits = true;
#pragma unroll
  for (int i = 0; i < C::TM; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float shift = subtracted || m[i][half] == -INFINITY ? 0.0f : m[i][half] * c;
      float sums[2] = {0.0f, 0.0f};
#pragma unroll
      for (int n = 0; n < C::TN; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = S_reg[i][n][2 * half + e];
          score = exp2_approx(score * c - shift);  // one fused multiply-add, one ex2
          sums[e] += score;
        }
      }
      sum[i][half] = sums[0] + sums[1];
      fits = fits && !(sum[i][half] > OVERFLOW);  // a NaN fits: it will not get better
    }
  }
  return __all_sync(ALL_LANES, fits);
}

/// (8.4)  O_reg += P V. The accumulators of S, rounded to T, are the A operands: of keys 16 k.. those of tiles 2k and 2k + 1.
template <class T, class C>
__device__ void accumulate_output(float (&O_reg)[C::TM][C::TD][4], const float (&P_reg)[C::TM][C::TN][4], const T* shared,
                                  const LaneOfMatrix<C::Width>& V_lane) {
#pragma unroll
  for (int k = 0; k < C::TN / 2; ++k) {
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
      unsigned V_reg[4];  // B operands of columns 8n..8n+7 and 8n+8..8n+15
      ldmatrix_x4_trans(V_reg, V_lane.chunk(shared, 16 * k, n / 2));
#pragma unroll
      for (int i = 0; i < C::TM; ++i) {
        add_mma<T>(O_reg[i][n], A[i], V_reg[0], V_reg[1]);
        add_mma<T>(O_reg[i][n + 1], A[i], V_reg[2], V_reg[3]);
      }
    }
  }
}

/// Which tile of which head a block works on. Blocks start in the order of their numbers: heads in groups whose K and V fit into L2,
/// within a group the last tiles of Q first, which see most keys under a causal mask.
struct Work {
  int tile, head;  // of all batches

  __device__ Work(const Problem& problem, int heads_at_once) {
    const int heads = problem.B * problem.H, Tr = gridDim.x / heads;
    const int group = blockIdx.x / (Tr * heads_at_once);
    const int in_group = blockIdx.x % (Tr * heads_at_once);
    const int size = min(heads_at_once, heads - group * heads_at_once);  // the last group may be smaller
    head = group * heads_at_once + in_group % size;
    tile = Tr - 1 - in_group / size;
  }
};

template <class T, class C>
__global__ void __launch_bounds__(C::THREADS, C::BLOCKS)
    forward_kernel(Problem problem, Tensor<const T> Q_all, Tensor<const T> K_all, Tensor<const T> V_all, Bias bias,
                   Tensor<T> O_all, Tensor<float> L_all, int heads_at_once) {
  if (C::MIN_SM > COMPILED_SM) return;  // not compiled for this GPU, and not chosen on it
  const Work work(problem, heads_at_once);
  const auto head_again = [&] {
    return Work(problem, opaque(heads_at_once)).head;
  };  // rather than a register that the loop lacks
  const int row0 = work.tile * C::Br;
  const int b = work.head / problem.H, h = work.head % problem.H;
  const Matrix<const T> K = K_all.head(b, problem.kv_head(h));
  const Matrix<const T> V = V_all.head(b, problem.kv_head(h));

  T* const shared = dynamic_shared<T>(C::SHARED_NUMBERS);
  constexpr int TILE = C::Bc * C::Width, KV = C::Br * C::Width;  // Q, then two tiles of K, then two of V
  const auto tile = [&](int start, int rows) { return SharedMatrix<T>{shared + start, rows, C::Width, C::Width}; };
  const Swizzle<C::Width> swizzle;

  // An A operand, and a transposed B operand, takes its four 8 x 8 matrices from rows 0..15 of the left and then of the right chunk;
  // two B operands of K take theirs from the left and the right chunk of rows 0..7 and then of rows 8..15.
  const Place<C::TM> at;
  const LaneOfMatrix<C::Width> Q_lane(0, at.warp_row + at.lane % 16, 8 * (at.lane / 16));
  const LaneOfMatrix<C::Width> K_lane(KV, at.lane % 8 + 8 * (at.lane / 16), 8 * (at.lane / 8 % 2));
  const LaneOfMatrix<C::Width> V_lane(KV + 2 * TILE, at.lane % 16, 8 * (at.lane / 16));
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
  const int plain_tiles = seen_by_all / C::Bc;  // all else are masked
  const int special_tiles = scale_first ? 0 : plain_tiles;
  const int Tc = (seen_by_any + C::Bc - 1) / C::Bc;
  Copier<T, C::THREADS, C::Bc, C::Width> copy_K(K, (Tc - 1) * C::Bc), copy_V(V, (Tc - 1) * C::Bc);  // from the last tile up
  const auto load_next = [&](int stage) {
    copy_K.load_async(tile(KV + stage * TILE, C::Bc), -C::Bc, swizzle);
    copy_V.load_async(tile(KV + (2 + stage) * TILE, C::Bc), -C::Bc, swizzle);
  };

  // 1. Q and the last tiles of K and V.
  if (Tc > 0) {
    Copier<T, C::THREADS, C::Br, C::Width>(Q_all.head(b, h), row0).load_async(tile(0, C::Br), 0, swizzle);
    load_next((Tc - 1) % 2);
  }
  cp_async_commit();

  Queries<C> Q_reg;
  if (C::Q_STAYS) {
    cp_async_wait<0>();
    __syncthreads();  // read after write: Q of all threads has landed
#pragma unroll
    for (int k = 0; k < C::TK; ++k) load_queries<T, C>(Q_reg[C::Q_STAYS ? k : 0], shared, Q_lane, k);
  }
  bool maximum_known = false;  // of all rows of the warp
  for (int j = Tc - 1; j >= 0; --j) {
    const int stage = j % 2;
    cp_async_wait<0>();
    __syncthreads();  // read after write: Q, K_j, V_j of all threads have landed; write after read: no warp reads K_(j+1), V_(j+1) any more
    if (j > 0) load_next(1 - stage);
    cp_async_commit();

    // 2. P, with the m that is at hand. If that does not fit, which is rare, once more with the true maximum, with which it does.
    float S_reg[C::TM][C::TN][4];  // S tile [Br, Bc], then P
    float sum[C::TM][2];
    bool fits;
    do {
      scores<T, C>(S_reg, Q_reg, shared, Q_lane, K_lane.moved(stage * TILE));
      bool subtracted = false;
      if (j >= special_tiles || !maximum_known) {  // one test for all that most tiles do not need
        if (scale_first) {
          const int head = head_again();
          scale_and_add_bias(S_reg, problem, bias, bias.values.head(head / problem.H, head % problem.H), row0, j * C::Bc, at);
        }
        if (j >= plain_tiles) mask(S_reg, problem, row0, j * C::Bc, at);
        subtracted = scale_first || !maximum_known;
        if (!maximum_known) maximum_known = raise_maximum<C>(m, l, O_reg, S_reg, c);
        if (subtracted) subtract_maximum<C>(S_reg, m);  // with the true maximum no score is above 0 then, whatever its size
      }
      fits = exponentiate<C>(S_reg, sum, m, c, subtracted);
      if (!fits) maximum_known = false;
    } while (!fits);
#pragma unroll
    for (int i = 0; i < C::TM; ++i) {
      l[i][0] += sum[i][0];
      l[i][1] += sum[i][1];
    }

    // 3. O += P V.
    accumulate_output<T, C>(O_reg, S_reg, shared, V_lane.moved(stage * TILE));
  }
  const int head = head_again();
  write_output(tile(0, C::Br), O_reg, m, l, factor, O_all.head(head / problem.H, head % problem.H),
               L_all.head_vector(head / problem.H, head % problem.H), row0, at, swizzle);
}

// K and V of so many heads that this many bytes hold them: most of the L2 of GPUs since the A100.
constexpr std::int64_t L2_BYTES = 32 << 20;

template <class T, class C>
void start_forward(const Attention& a) {
  const Problem& p = a.problem;
  const int heads = p.B * p.H;
  const std::int64_t bytes_of_head = std::int64_t{2} * p.Nk * p.d * static_cast<int>(sizeof(T)) / p.group_size();
  const auto heads_at_once =
      static_cast<int>(std::clamp<std::int64_t>(L2_BYTES / std::max<std::int64_t>(1, bytes_of_head), 1, heads));
  const unsigned blocks = blocks_for(p.Nq, C::Br) * static_cast<unsigned>(heads);
  launch("tensor_forward", {dim3(blocks), dim3(C::THREADS), C::SHARED_NUMBERS * sizeof(T)}, forward_kernel<T, C>, p,
         view<const T>(aligned<T>(a, a.Q, "Q_padded")), view<const T>(aligned<T>(a, a.K, "K_padded")),
         view<const T>(aligned<T>(a, a.V, "V_padded")), bias_of(a), view<T>(a.O), view<float>(a.L), heads_at_once);
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

// For each width the fastest first, as measured with --tune on an H200.
constexpr Compiled kernels[] = {
    compiled<Shape<32, 64, 64, 1, 4>>("four blocks on an SM: few products to each exponential"),
    compiled<Shape<32, 128, 64, 2, 2>>("32 rows a warp"),
    compiled<Shape<64, 128, 64, 2, 2>>("32 rows a warp, Q in registers"),
    compiled<Shape<64, 64, 64, 1, 3>>("twice as many blocks, three on an SM"),
    compiled<Shape<96, 128, 64, 2, 2>>("32 rows a warp"),
    compiled<Shape<96, 64, 32, 1, 3>>("twice as many blocks, little shared memory"),
    compiled<Shape<128, 128, 64, 2, 2>>("32 rows a warp"),
    compiled<Shape<128, 64, 32, 1, 2>>("twice as many blocks, little shared memory"),
    compiled<Shape<256, 128, 64, 1, 1>>("16 rows a warp: more of O than that has no room; 8 warps share K and V"),
    compiled<Shape<256, 64, 32, 1, 2>>("twice as many blocks"),
    compiled<Shape<256, 32, 16, 1, 4>>("little shared memory"),
};

std::vector<TileChoice> tiles(const Problem& p, Pass, const DeviceLimits& limits) { return choices(kernels, p, limits); }

void forward(const Attention& a) { start(kernels, a); }

const Variant variant{.name = "tuned",
                      .idea = "a maximum only when P would overflow, tiles for each width, heads that share L2",
                      .forward = forward,
                      .workspace = forward_workspace,
                      .refuse = refuse_forward,
                      .tiles = tiles,
                      .dtypes = {Dtype::fp16, Dtype::bf16},
                      .max_head_dim = 256,
                      .refuse_on = refuse_on};

}  // namespace
}  // namespace flash::tensor_cores
