// 08 Tensor cores, backward, step 2: one kernel over tiles of K and V; dQ is summed by atomics.
//
//   for each tile j of K, V, a block of its own, for each tile i of Q, dO that sees any of it:
//     P^T = e^(scale K_j Q_i^T + bias - L_i), masked                                    (8.11)
//     dP^T = V_j dO_i^T                                                                 (8.12)
//     dS^T = P^T o (dP^T - D_i)      with D = rowsum(dO o O), by a kernel before        (8.13)
//     dV_j += P^T dO_i                                                                  (8.14)
//     dK_j += scale dS^T Q_i                                                            (8.15)
//     dQ_i += scale dS K_j                                                              (8.16)
//
// New since step 1: dQ_i is added to HBM by each tile of K in turn, so that S and dP are computed once, not twice: five products instead of
// seven. All warps share dQ_i = dS K_j of the tile that half 1 has finished one step before: half 0 at the end of a step, half 1 at its
// beginning, so that not all of them wait for memory at once. The sum is kept in fp32 and in the order of accumulators: the 32 lanes of a
// warp add to 512 bytes in a row. A last kernel brings it in order, times scale, in 16 bits.
//
// Grid: Tc*B*Hkv; the block of a key/value head walks over all query heads that read it. Block: two halves of warps (backward_parts.cuh).
// HBM: K, V once; Q, dO, L, D once for each tile of K that they see; the sum of dQ written, read and written each time, read; dQ, dK,
// dV once. Workspace: L and D; the sum of dQ. Shapes: all; d is padded with zeros to 32, 64, 96, 128 or 256.
#pragma once

#include "08_tensor_cores/backward_launch.cuh"

namespace flash::tensor_cores {
namespace {

/// The warps that share dQ [Br, Width], below each other and side by side; those beyond have no part of it. A warp's 16 x 8 tiles: QT x CT.
template <class T, int Width, int Br, int Bc, int Warps, int QueryWarps, int ColumnWarps>
struct SharedSum : Shape<T, Width, Br, Bc, Warps> {
  static constexpr int MQ = QueryWarps, NQ = ColumnWarps, QT = Br / MQ / 16, CT = Width / NQ / 8;
  static_assert(QT >= 1 && QT * 16 * MQ == Br && CT % 2 == 0 && CT * 8 * NQ == Width && MQ * NQ <= Warps,
                "dQ is dealt out evenly");
};

/// (8.16)  The warp's part of dS K   [Br, Bc] x [Bc, Width], added to the sum of dQ, in which each row is a 16 x 8 tile: 4 numbers a lane.
template <class C>
__device__ void add_to_dQ(const Matrix<float>& sum, int row0, const unsigned char* shared, int dS, const Role<C>& at) {
  const int warp = at.half * C::HALF + at.warp;
  if (warp >= C::MQ * C::NQ) return;
  const int m0 = warp % C::MQ * C::QT, n0 = warp / C::MQ * C::CT;
  float z[C::QT][C::CT][4] = {};
  int A[C::QT], B[C::CT / 2];  // addresses of the operands of the first 16 keys
  dS = opaque(dS + right_first<C::Br>(at.lane));
  const int K = opaque(C::K + at.down);
#pragma unroll
  for (int m = 0; m < C::QT; ++m) A[m] = to_the_right<C::Br>(dS, 2 * (m0 + m));
#pragma unroll
  for (int n = 0; n < C::CT / 2; ++n) B[n] = to_the_right<C::Width>(K, n0 + 2 * n);
  unsigned a[2][C::QT][4], b[2][C::CT / 2][4];
  const auto fetch = [&](int k) {
#pragma unroll
    for (int m = 0; m < C::QT; ++m) ldmatrix_x4_trans(a[k % 2][m], shared + A[m] + k * 16 * 2 * C::Br);
#pragma unroll
    for (int n = 0; n < C::CT / 2; ++n) ldmatrix_x4_trans(b[k % 2][n], shared + B[n] + k * 16 * C::ROW);
  };
  fetch(0);
#pragma unroll
  for (int k = 0; k < C::Bc / 16; ++k) {
    if (k + 1 < C::Bc / 16) fetch(k + 1);
#pragma unroll
    for (int n = 0; n < C::CT; ++n) {
#pragma unroll
      for (int m = 0; m < C::QT; ++m)
        add_mma<typename C::T>(z[m][n], a[k % 2][m], b[k % 2][n / 2][n % 2 * 2], b[k % 2][n / 2][n % 2 * 2 + 1]);
    }
  }
  const auto first = sum.address(0, ((row0 / 16 + m0) * C::DT + n0) * 128 + 4 * at.lane);
#pragma unroll
  for (int m = 0; m < C::QT; ++m) {
#pragma unroll
    for (int n = 0; n < C::CT; ++n) {
      atomic_add4(first + (m * C::DT + n) * 128, make_float4(z[m][n][0], z[m][n][1], z[m][n][2], z[m][n][3]));
    }
  }
}

template <class C>
__global__ void __launch_bounds__(C::THREADS, 1)
    backward_kernel(Problem problem, Operands<typename C::T> all, Tensor<float> sum_all, int heads_at_once) {
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
  Visit loaded{h_kv * problem.group_size(), first_tile}, scored = loaded, summed = loaded;
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

  for (int step = 0; step < visits + 2; ++step) {
    cp_async_wait<0>();
    __syncthreads();  // read after write: the tiles, P and dS of all threads are there; write after read: nobody reads the oldest
    if (step + 1 < visits) load((step + 1) % STAGES);
    cp_async_commit();
    const int stage = (step - at.half + STAGES) % STAGES;  // of the tile that this half works on
    const int oldest = (step + 1) % STAGES;                // of the tile before the two: its dS is complete
    const auto sum_dQ = [&] {
      add_to_dQ<C>(sum_all.head(opaque(b), summed.h), summed.tile * C::Br, shared, C::P + oldest * C::P_BYTES, at);
    };

    // 2. Half 1: dQ += dS K of the oldest tile.
    if (!first_half && step >= 2) sum_dQ();

    const int own = step - at.half;
    if (own >= 0 && own < visits) {
      // 3. Half 0: S^T = K Q^T. Half 1: dP^T = V dO^T, of the tile before.
      float x[C::MT][C::NT][4];
      product_of_rows<C>(x, shared, (first_half ? C::K : C::V) + at.warp * C::KEYS * C::ROW,
                         (first_half ? C::Q : C::dO) + stage * C::Q_BYTES, at);

      // 4. Half 0: P^T, for half 1 too. Half 1: dS^T, in its place.
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
        __syncwarp();  // write after read: dS^T lies in another order, over numbers of P^T that other lanes have read
        store_dS<C>(words, f, at.lane);
      }

      // 5. Half 0: dV += P^T dO. Half 1: dK += dS^T Q.
      add_product<C>(y, f, shared, (first_half ? C::dO : C::Q) + stage * C::Q_BYTES, at);
    }

    // 6. Half 0: dQ += dS K of the oldest tile.
    if (first_half && step >= 2) sum_dQ();
    if (step >= 2) advance(summed);
    advance(scored);
  }
  const Work<C> same(problem, heads_at_once, opaque(blockIdx.x));  // found again, which spares registers in the loop
  const int warp_row = at.warp * C::KEYS;
  __syncthreads();  // write after read: the gradients leave through the tiles of V and K, which nobody needs any more
  write_gradient<C>((first_half ? all.dV : all.dK).head(same.b, same.h_kv), same.col0 + warp_row,
                    first_half ? 1.0f : problem.scale, y, shared, (first_half ? C::V : C::K) + warp_row * C::ROW, at.lane);
}

/// dQ = scale times its sum, in 16 bits. A thread takes 8 columns of rows g and g + 8 of 16: in the order of fragments they are neighbours.
template <class T, int Width>
__global__ void __launch_bounds__(PREPARE_THREADS)
    convert_kernel(Problem problem, Tensor<const float> sum_all, Tensor<T> dQ_all, bool wide) {
  constexpr int CHUNKS = Width / 8;
  const int heads = problem.B * problem.H;
  const int b = blockIdx.x % heads / problem.H, h = blockIdx.x % heads % problem.H;
  const int index = blockIdx.x / heads * PREPARE_THREADS + threadIdx.x;
  const int chunk = index % CHUNKS, g = index / CHUNKS % 8, group = index / CHUNKS / 8, col = 8 * chunk;
  if (16 * group + g >= problem.Nq || col >= problem.d) return;
  const Matrix<const float> sum = sum_all.head(b, h);
  const Matrix<T> dQ = dQ_all.head(b, h);
  float rows[2][8];
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    const float4 z = sum.as<float4>(0, (group * CHUNKS + chunk) * 128 + (4 * g + t) * 4);
    rows[0][2 * t] = problem.scale * z.x, rows[0][2 * t + 1] = problem.scale * z.y;
    rows[1][2 * t] = problem.scale * z.z, rows[1][2 * t + 1] = problem.scale * z.w;
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = 16 * group + g + 8 * r;
    if (i >= problem.Nq) return;
    const float(&x)[8] = rows[r];
    if (wide) {
      dQ.template as<uint4>(i, col) =
          make_uint4(pack<T>(x[0], x[1]), pack<T>(x[2], x[3]), pack<T>(x[4], x[5]), pack<T>(x[6], x[7]));
    } else {
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        if (col + c < problem.d) dQ(i, col + c) = T(x[c]);
      }
    }
  }
}

template <class C>
void start_backward(const Attention& a) {
  using T = typename C::T;
  const Problem& p = a.problem;
  const TensorRef& sum = a.workspace("sum_dQ");
  const int heads_at_once = heads_in_L2(p.B * p.Hkv, std::int64_t{p.Nq} * p.group_size() * C::Width * (2 + 2 + 4));
  launch_prepare<T, C::Width>(a, &sum);
  launch("backward", {dim3(blocks_for(p.Nk, C::Bc) * static_cast<unsigned>(p.B * p.Hkv)), dim3(C::THREADS), C::SHARED_BYTES},
         backward_kernel<C>, p, operands_of<T>(a), view<float>(sum), heads_at_once);
  const std::int64_t chunks = std::int64_t{padded_queries(p)} / 2 * (C::Width / 8);  // a thread for two rows of each
  launch("convert",
         {dim3(static_cast<unsigned>((chunks + PREPARE_THREADS - 1) / PREPARE_THREADS * p.B * p.H)), dim3(PREPARE_THREADS)},
         convert_kernel<T, C::Width>, p, view<const float>(sum), view<T>(a.dQ), rows_are_aligned(p));
}

template <int Width, int Br, int Bc, int Warps, int QueryWarps, int ColumnWarps>
constexpr Compiled compiled(const char* why) {
  using Half = SharedSum<__half, Width, Br, Bc, Warps, QueryWarps, ColumnWarps>;
  using Bfloat = SharedSum<__nv_bfloat16, Width, Br, Bc, Warps, QueryWarps, ColumnWarps>;
  return {Width, 75, {Br, Bc}, Half::THREADS, Half::SHARED_BYTES, why, start_backward<Half>, start_backward<Bfloat>};
}

// For each width the fastest first, as measured with --tune on an H200.
const std::vector<Compiled> kernels = {
    compiled<32, 128, 128, 8, 4, 2>("32 keys a warp"),
    compiled<32, 64, 64, 8, 2, 2>("little shared memory"),
    compiled<64, 128, 128, 8, 4, 2>("32 keys a warp, half as many barriers"),
    compiled<64, 64, 128, 8, 2, 4>("32 keys a warp"),
    compiled<64, 64, 64, 8, 2, 4>("little shared memory"),
    compiled<64, 32, 64, 8, 1, 4>("least shared memory"),
    compiled<96, 64, 128, 8, 4, 2>("32 keys a warp"),
    compiled<96, 32, 128, 8, 1, 6>("less shared memory"),
    compiled<96, 32, 64, 8, 1, 6>("little shared memory"),
    compiled<96, 16, 64, 8, 1, 6>("least shared memory"),
    compiled<128, 64, 128, 8, 2, 4>("32 keys a warp"),
    compiled<128, 32, 128, 8, 1, 8>("less shared memory"),
    compiled<128, 32, 64, 8, 1, 8>("little shared memory"),
    compiled<128, 16, 64, 8, 1, 8>("least shared memory"),
    compiled<256, 32, 64, 8, 1, 8>("16 keys a warp"),
    compiled<256, 16, 64, 8, 1, 8>("less shared memory"),
    compiled<256, 16, 32, 4, 1, 4>("little shared memory"),
};

std::vector<TileChoice> tiles(const Problem& p, Pass pass, const DeviceLimits& limits) {
  return tiles_of(kernels, p, pass, limits);
}

void backward(const Attention& a) { start_one_of(kernels, a); }

std::vector<WorkspaceSpec> workspace(const Problem& p, Pass pass) {
  std::vector<WorkspaceSpec> list = backward_workspace(p, pass);
  const std::int64_t fragments = std::int64_t{padded_queries(p)} / 16 * (width_of(p.d) / 8);
  if (pass == Pass::backward) list.push_back({"sum_dQ", {p.B, p.H, 1, fragments * 128}});
  return list;
}

const Variant variant{.name = "one_kernel",
                      .idea = "five products; dQ summed by atomics in the order of fragments",
                      .forward = forward,
                      .backward = backward,
                      .workspace = workspace,
                      .refuse = refuse_backward,
                      .tiles = tiles,
                      .atomic_dQ = true,
                      .dtypes = {Dtype::fp16, Dtype::bf16},
                      .max_head_dim = 256,
                      .refuse_on = refuse_on};

}  // namespace
}  // namespace flash::tensor_cores
