// 08 Tensor cores, backward, step 1: two kernels, so that each sum has one owner.
//
//   P^T = e^(scale K_j Q_i^T + bias - L_i), masked                                      (8.11)
//   dP^T = V_j dO_i^T                                                                   (8.12)
//   dS^T = P^T o (dP^T - D_i)      with D = rowsum(dO o O), by a kernel before          (8.13)
//   dk_dv_kernel: for each tile j of K, V, a block of its own, over the tiles i of Q, dO:
//     dV_j += P^T dO_i                                                                  (8.14)
//     dK_j += scale dS^T Q_i                                                            (8.15)
//   dq_kernel: for each tile i of Q, dO, a block of its own, over the tiles j of K, V:
//     dQ_i += scale dS K_j                                                              (8.16)
//
// New since chapter 07: products on tensor cores in 16 bits, P and dS rounded to them, sums in fp32. The halves of a block work on
// neighbouring tiles instead of one, and wait for each other once a tile instead of four times (backward_parts.cuh). In dq_kernel a
// warp owns 16 queries and needs no other one: its dS goes from the accumulators of two products to the A operand of the third.
//
// Seven products; nothing is added by two blocks, so results are the same to the last bit in each run.
//
// Grids: Tc*B*Hkv, the block of a key/value head walks over all query heads that read it; tiles of Bc queries*B*H.
// HBM: K, V once, Q, dO, L, D once for each tile of K that they see; then Q, dO, L, D once, K, V once for each Bc queries that see
//   them; dQ, dK, dV once.  Workspace: L and D. Shapes: all; d is padded with zeros to 32, 64, 96, 128 or 256.
#pragma once

#include "08_tensor_cores/backward_launch.cuh"

namespace flash::tensor_cores {
namespace {

template <class C>
__global__ void __launch_bounds__(C::THREADS, 1) dk_dv_kernel(Problem problem, Operands<typename C::T> all, int heads_at_once) {
  if constexpr (C::SHARED_BYTES > MOST_SHARED_BYTES) return;
  const Work<C> work(problem, heads_at_once, blockIdx.x);
  const int b = work.b, h_kv = work.h_kv, col0 = work.col0;

  unsigned char* const shared = dynamic_shared<unsigned char>(C::SHARED_BYTES);
  const Role<C> at;
  const bool first_half = at.half == 0;
  const bool exponents_first = all.bias.kind != BiasKind::none || problem.scale == 0.0f;  // 0 times a masked score is no number
  float y[C::MT][C::DT][4] = {};  // half 0: dV tile [Bc, Width]; half 1: dK tile, not scaled

  // The tiles of Q from the first query on that sees a key of this tile, for each query head that reads the head. There is one: the last
  // query sees every key.
  struct Visit {
    int h, tile;
  };
  const int first_tile = problem.causal ? max(0, col0 - (problem.Nk - problem.Nq)) / C::Br : 0;
  const int end_tile = (problem.Nq + C::Br - 1) / C::Br, visits = (end_tile - first_tile) * problem.group_size();
  const auto advance = [&](Visit& v) {
    if (++v.tile == end_tile) v = {v.h + 1, first_tile};
  };
  Visit loaded{h_kv * problem.group_size(), first_tile}, scored = loaded;
  const auto load = [&](int stage) {
    const int row0 = loaded.tile * C::Br, batch = opaque(b);
    load_tile<C, C::Br>(shared, C::Q + stage * C::Q_BYTES, all.Q.head(batch, loaded.h), row0);
    load_tile<C, C::Br>(shared, C::dO + stage * C::Q_BYTES, all.dO.head(batch, loaded.h), row0);
    load_LD<C>(shared, C::LD + stage * C::LD_BYTES, all.LD.head(batch, loaded.h), row0);
    advance(loaded);
  };

  // 1. K, V, and the first tile of Q, dO.
  clear_columns<C>(shared, C::K, 2 * C::Bc + 2 * STAGES * C::Br, all.K.cols);
  load_tile<C, C::Bc>(shared, C::K, all.K.head(b, h_kv), col0);
  load_tile<C, C::Bc>(shared, C::V, all.V.head(b, h_kv), col0);
  load(0);
  cp_async_commit();

  for (int step = 0; step < visits + 1; ++step) {
    cp_async_wait<0>();
    __syncthreads();  // read after write: tiles of Q, dO and P of all threads are there; write after read: and of the oldest nobody reads
    if (step + 1 < visits) load((step + 1) % STAGES);
    cp_async_commit();
    const int stage = (step - at.half + STAGES) % STAGES;  // of the tile that this half works on
    const int own = step - at.half;
    if (own >= 0 && own < visits) {
      // 2. Half 0: S^T = K Q^T. Half 1: dP^T = V dO^T, of the tile before.
      float x[C::MT][C::NT][4];
      product_of_rows<C>(x, shared, (first_half ? C::K : C::V) + at.warp * C::KEYS * C::ROW,
                         (first_half ? C::Q : C::dO) + stage * C::Q_BYTES, at);

      // 3. Half 0: P^T, for half 1 too. Half 1: dS^T.
      const SharedMatrix<const float> LD{reinterpret_cast<const float*>(shared + C::LD + stage * C::LD_BYTES), 1, 2 * C::Br,
                                         2 * C::Br};
      constexpr int words_of_warp = C::KEYS * C::Br / 2;
      const SharedMatrix<unsigned> words{
          reinterpret_cast<unsigned*>(shared + C::P + stage * C::P_BYTES) + at.warp * words_of_warp, 1, words_of_warp,
          words_of_warp};
      unsigned f[C::MT][C::KT][4];
      if (first_half) {
        const int row0 = opaque(scored.tile * C::Br), first_key = opaque(col0);
        const bool masked = problem.visible_keys(row0) < first_key + C::Bc;
        if (exponents_first) {
          find_exponents<C>(x, problem, all.bias, all.bias.values.head(opaque(b), scored.h), row0, first_key, LD, at);
          if (masked) mask_scores<C>(x, problem, row0, first_key, -INFINITY, at);
          exponentiate<C, true>(f, x, problem.scale, LD, at);
        } else {  // the usual case: scale and L become part of a multiply-add
          if (masked) mask_scores<C>(x, problem, row0, first_key, problem.scale > 0.0f ? -INFINITY : INFINITY, at);
          exponentiate<C, false>(f, x, problem.scale, LD, at);
        }
        store_fragments<C>(words, f, at.lane);
      } else {
        score_gradients<C>(f, x, words, LD, at);
      }

      // 4. Half 0: dV += P^T dO. Half 1: dK += dS^T Q.
      add_product<C>(y, f, shared, (first_half ? C::dO : C::Q) + stage * C::Q_BYTES, at);
    }
    advance(scored);
  }
  const Work<C> same(problem, heads_at_once, opaque(blockIdx.x));  // found again, which spares registers in the loop
  const int warp_row = at.warp * C::KEYS;
  __syncthreads();  // write after read: the gradients leave through the tiles of V and K, which nobody needs any more
  write_gradient<C>((first_half ? all.dV : all.dK).head(same.b, same.h_kv), same.col0 + warp_row,
                    first_half ? 1.0f : problem.scale, y, shared, (first_half ? C::V : C::K) + warp_row * C::ROW, at.lane);
}

/// dq_kernel's turn of a shape: a block owns Bc queries, 16 a warp, and walks over tiles of Br keys. Two stages of K and V suffice.
template <class C>
struct Turned {
  using T = typename C::T;
  static constexpr int Width = C::Width, Br = C::Br, Rows = C::Bc, KEYS = 16, HALF = Rows / 16, THREADS = HALF * WARP;
  static constexpr int MT = 1, NT = Br / 8, KT = Br / 16, DT = Width / 8, ROW = C::ROW;
  static constexpr int STAGE_BYTES = 2 * Br * ROW;
  static constexpr int Q = 0, dO = Q + Rows * ROW, K = dO + Rows * ROW, V = K + Br * ROW, SHARED_BYTES = K + 2 * STAGE_BYTES;
  static_assert(SHARED_BYTES <= C::SHARED_BYTES, "a device that has room for one kernel has room for the other");
};

/// (8.11), (8.13)  dS = P o (dP - D), in 16 bits, as A operands, from s and dP of the same places. L and D: of rows g and g + 8.
template <class C>
__device__ void score_gradients_of_queries(unsigned (&ds)[1][C::KT][4], const float (&s)[1][C::NT][4],
                                           const float (&dp)[1][C::NT][4], float scale, const float (&L)[2],
                                           const float (&D)[2], bool scaled) {
  const float factor = (scaled ? 1.0f : scale) * LOG2_E;
#pragma unroll
  for (int n = 0; n < C::NT; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float z[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float score = s[0][n][2 * half + e];
        // A bias may be so large that its product with log2(e) is no longer precise enough: its L goes first.
        const float exponent = scaled ? (score - L[half]) * LOG2_E : factor * score - L[half] * LOG2_E;
        z[e] = exp2_approx(exponent) * (dp[0][n][2 * half + e] - D[half]);
      }
      ds[0][n / 2][n % 2 * 2 + half] = pack<typename C::T>(z[0], z[1]);
    }
  }
}

template <class C>
__global__ void __launch_bounds__(Turned<C>::THREADS, 1)
    dq_kernel(Problem problem, Operands<typename C::T> all, int heads_at_once) {
  using B = Turned<C>;
  if constexpr (C::SHARED_BYTES > MOST_SHARED_BYTES) return;
  // Heads in groups that share L2; within a group the last queries, which under a causal mask see most keys, start first.
  const int heads = problem.B * problem.H, tiles_of_head = gridDim.x / heads;
  const int group = blockIdx.x / (heads_at_once * tiles_of_head) * heads_at_once;
  const int in_group = blockIdx.x % (heads_at_once * tiles_of_head), size = min(heads_at_once, heads - group);
  const int b = (group + in_group % size) / problem.H, h = (group + in_group % size) % problem.H;
  const int row0 = (tiles_of_head - 1 - in_group / size) * B::Rows;
  const Matrix<const typename C::T> K = all.K.head(b, problem.kv_head(h)), V = all.V.head(b, problem.kv_head(h));

  unsigned char* const shared = dynamic_shared<unsigned char>(B::SHARED_BYTES);
  const Role<B> at;                                                              // for the products
  const Place<1> place;                                                          // for the scores: the same rows
  const bool scaled = all.bias.kind != BiasKind::none || problem.scale == 0.0f;  // before masking: 0 times -inf is no number
  float y[1][B::DT][4] = {};                                                     // dQ tile, not scaled
  float L[2], D[2];                                                              // of the lane's two queries
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float2 two = all.LD.head(b, h).template as<float2>(0, 2 * (row0 + place.row(0, half)));
    L[half] = two.x;
    D[half] = two.y;
  }
  const int seen_by_all = problem.visible_keys(row0);
  const int seen_by_any = problem.visible_keys(min(row0 + B::Rows, problem.Nq) - 1);
  const auto load = [&](int col0) {
    const int stage = col0 / B::Br % 2 * B::STAGE_BYTES;
    load_tile<B, B::Br>(shared, B::K + stage, K, col0);
    load_tile<B, B::Br>(shared, B::V + stage, V, col0);
  };

  // 1. Q, dO, and the first tile of K, V.
  clear_columns<B>(shared, B::Q, 2 * B::Rows + 4 * B::Br, K.cols);
  load_tile<B, B::Rows>(shared, B::Q, all.Q.head(b, h), row0);
  load_tile<B, B::Rows>(shared, B::dO, all.dO.head(b, h), row0);
  if (seen_by_any > 0) load(0);
  cp_async_commit();

  for (int col0 = 0; col0 < seen_by_any; col0 += B::Br) {
    const int stage = col0 / B::Br % 2 * B::STAGE_BYTES;
    cp_async_wait<0>();
    __syncthreads();  // read after write: the tiles of all threads have landed; write after read: and of the other ones nobody reads
    if (col0 + B::Br < seen_by_any) load(col0 + B::Br);
    cp_async_commit();

    // 2. S = Q K^T, dP = dO V^T.
    float s[1][B::NT][4], dp[1][B::NT][4];
    product_of_rows<B>(s, shared, B::Q + at.warp * 16 * B::ROW, B::K + stage, at);
    product_of_rows<B>(dp, shared, B::dO + at.warp * 16 * B::ROW, B::V + stage, at);

    // 3. P and dS.
    if (scaled) scale_and_add_bias(s, problem, all.bias, all.bias.values.head(b, h), row0, col0, place);
    if (col0 + B::Br > seen_by_all) {
      mask(s, problem, row0, col0, place);
      if (!scaled && problem.scale < 0.0f) {  // -inf times scale must be -inf
#pragma unroll
        for (int n = 0; n < B::NT; ++n) {
#pragma unroll
          for (int e = 0; e < 4; ++e) s[0][n][e] = s[0][n][e] == -INFINITY ? INFINITY : s[0][n][e];
        }
      }
    }
    unsigned f[1][B::KT][4];
    score_gradients_of_queries<B>(f, s, dp, problem.scale, L, D, scaled);

    // 4. dQ += dS K.
    add_product<B>(y, f, shared, B::K + stage, at);
  }
  cp_async_wait<0>();  // if there was no tile of K
  // dQ leaves through the warp's own rows of Q.
  __syncthreads();  // write after write: where there was no tile of K, copies to these rows by others may still have been on their way
  write_gradient<B>(all.dQ.head(b, h), row0 + 16 * at.warp, problem.scale, y, shared, B::Q + 16 * at.warp * B::ROW, at.lane);
}

template <class C>
void start_backward(const Attention& a) {
  using T = typename C::T;
  const Problem& p = a.problem;
  const Operands<T> all = operands_of<T>(a);
  const int kv_heads = p.B * p.Hkv, heads = p.B * p.H;
  const std::int64_t bytes_of_row = 2 * 2 * C::Width;  // of Q and dO, or K and V
  launch_prepare<T, C::Width>(a, nullptr);
  launch("dk_dv", {dim3(blocks_for(p.Nk, C::Bc) * static_cast<unsigned>(kv_heads)), dim3(C::THREADS), C::SHARED_BYTES},
         dk_dv_kernel<C>, p, all, heads_in_L2(kv_heads, bytes_of_row * p.Nq * p.group_size()));
  launch("dq",
         {dim3(blocks_for(p.Nq, C::Bc) * static_cast<unsigned>(heads)), dim3(Turned<C>::THREADS), Turned<C>::SHARED_BYTES},
         dq_kernel<C>, p, all, heads_in_L2(heads, bytes_of_row * p.Nk));
}

template <int Width, int Br, int Bc, int Warps>
constexpr Compiled compiled(const char* why) {
  using Half = Shape<__half, Width, Br, Bc, Warps>;
  using Bfloat = Shape<__nv_bfloat16, Width, Br, Bc, Warps>;
  return {Width, 75, {Br, Bc}, Half::THREADS, Half::SHARED_BYTES, why, start_backward<Half>, start_backward<Bfloat>};
}

// For each width the fastest first, as measured with --tune on an H200.
const std::vector<Compiled> kernels = {
    compiled<32, 128, 128, 8>("32 keys a warp"), compiled<32, 64, 64, 8>("little shared memory"),
    compiled<64, 64, 128, 8>("32 keys a warp"),  compiled<64, 32, 64, 8>("little shared memory"),
    compiled<96, 64, 128, 8>("32 keys a warp"),  compiled<96, 16, 64, 8>("little shared memory"),
    compiled<128, 64, 128, 8>("32 keys a warp"), compiled<128, 16, 64, 8>("little shared memory"),
    compiled<256, 32, 64, 8>("16 keys a warp"),  compiled<256, 16, 32, 4>("little shared memory"),
};

std::vector<TileChoice> tiles(const Problem& p, Pass pass, const DeviceLimits& limits) {
  return tiles_of(kernels, p, pass, limits);
}

void backward(const Attention& a) { start_one_of(kernels, a); }

const Variant variant{.name = "two_kernels",
                      .idea = "dK and dV over tiles of K, dQ over tiles of Q: deterministic, seven products",
                      .forward = forward,
                      .backward = backward,
                      .workspace = backward_workspace,
                      .refuse = refuse_backward,
                      .tiles = tiles,
                      .dtypes = {Dtype::fp16, Dtype::bf16},
                      .max_head_dim = 256,
                      .refuse_on = refuse_on};

}  // namespace
}  // namespace flash::tensor_cores
