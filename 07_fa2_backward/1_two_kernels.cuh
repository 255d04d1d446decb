// 07 FlashAttention-2, backward, step 1: two kernels, so that each sum has one owner.
//
//   S = scale Q_i K_j^T + bias, masked;   P = e^(S - L_i)                               (7.1)
//   dP = dO_i V_j^T                                                                     (7.2)
//   dS = P o (dP - D_i)      with D = rowsum(dO o O), by a kernel before                (7.3)
//   dk_dv_kernel: for each tile j of K, V, a block of its own, over the tiles i of Q:
//     dV_j += P^T dO_i                                                                  (7.4)
//     dK_j += scale dS^T Q_i                                                            (7.5)
//   dq_kernel: for each tile i of Q, a block of its own, over the tiles j of K, V:
//     dQ_i += scale dS K_j                                                              (7.6)
//
// dV and dK sum over queries, dQ sums over keys: a block that walks along the one cannot own the other. Here each walk is made, and S and dP
// are computed in both: seven products. Nothing is added by two blocks, so results are the same to the last bit in each run.
//
// P is recomputed from L, which is all that the forward pass left; L replaces the m and l of FlashAttention-1. Tiles that nobody sees are
// not visited: dk_dv begins at the first query that sees a key of its tile, dq ends at the last key that a query of its tile sees.
//
// Grids: Tc*B*Hkv, the block of a key/value head walks over all query heads that read it; Tr*B*H. Block: 8 warps (parts.cuh).
// HBM: K, V once, Q, dO, L, D once per tile of K that they see; then Q, dO, L, D once, K, V once per tile of Q that sees them; dQ, dK, dV
//   written once (7.7).  Workspace: D.  Shapes: all; d is padded with zeros to 32, 64, 96 or 128.
#pragma once

#include "07_fa2_backward/parts.cuh"

namespace flash::fa2_backward {
namespace {

template <class C>
__global__ void __launch_bounds__(THREADS, 1) dk_dv_kernel(Problem problem, Operands all, bool wide) {
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
  // The tiles of Q from the first query on that sees a key of this tile, for each query head of the group. There is one: the last
  // query sees every key.
  const int first_row = problem.causal ? max(0, col0 - (problem.Nk - problem.Nq)) : 0;
  const int first_tile = first_row / C::Br, end_tile = (problem.Nq + C::Br - 1) / C::Br;
  const int first_head = h_kv * problem.group_size(), last_head = first_head + problem.group_size() - 1;
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
  load(first_head, first_tile);
  cp_async_commit();

  for (int h = first_head; h <= last_head; ++h) {
    float Y_reg[C::TK][4 * C::TD] = {};  // half 0: dV tile [Bc, Width]; half 1: dK tile, not scaled; of this query head
    for (int tile = first_tile; tile < end_tile; ++tile) {
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
      const bool last_tile = tile + 1 == end_tile;
      if (!last_tile || h < last_head) load(last_tile ? h + 1 : h, last_tile ? first_tile : tile + 1);
      cp_async_commit();
    }
    // 5. One sum for each head, then the sum of the heads: one chain of additions over all queries of a group would lose two bits more.
    write_gradient<C>((first_half ? all.dV : all.dK).head(b, h_kv), col0, first_half ? 1.0f : problem.scale, Y_reg,
                      h > first_head, wide, at);
  }
}

/// The thread's part of the tile of dQ that begins at row0: factor Z_reg.
template <class C>
__device__ void write_dQ(const Matrix<float>& dQ, int row0, float factor, const float (&Z_reg)[C::TQ][4 * C::TC], bool wide,
                         const Place<C>& at) {
#pragma unroll
  for (int r = 0; r < C::TQ; ++r) {
    const int i = row0 + at.query_row(r);
    if (i >= dQ.rows) continue;
#pragma unroll
    for (int g = 0; g < C::TC; ++g) write_four(dQ, i, at.query_cols(g), factor, &Z_reg[r][4 * g], false, wide);
  }
}

template <class C>
__global__ void __launch_bounds__(THREADS, 1) dq_kernel(Problem problem, Operands all, bool wide) {
  // Under a causal mask the last queries see most keys: their blocks start first.
  const int heads = problem.B * problem.H, Tr = gridDim.x / heads;
  const int b = blockIdx.x % heads / problem.H;
  const int h = blockIdx.x % heads % problem.H;
  const int row0 = (problem.causal ? Tr - 1 - blockIdx.x / heads : blockIdx.x / heads) * C::Br;
  const Matrix<const float> K = all.K.head(b, problem.kv_head(h)), V = all.V.head(b, problem.kv_head(h));

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
  float Z_reg[C::TQ][4 * C::TC] = {};  // dQ tile [Br, Width], not scaled
  const int seen_by_all = problem.visible_keys(row0);
  const int seen_by_any = problem.visible_keys(min(row0 + C::Br, problem.Nq) - 1);

  // 1. Q, dO, L, D, and the first tile of K, V.
  load_async<C, C::Br>(Q_smem, all.Q.head(b, h), row0, wide);
  load_async<C, C::Br>(dO_smem, all.dO.head(b, h), row0, wide);
  load_async<C::Br>(L_smem, all.L.head_vector(b, h), row0);
  load_async<C::Br>(D_smem, all.D.head_vector(b, h), row0);
  if (seen_by_any > 0) {
    load_async<C, C::Bc>(K_smem, K, 0, wide);
    load_async<C, C::Bc>(V_smem, V, 0, wide);
  }
  cp_async_commit();

  for (int col0 = 0; col0 < seen_by_any; col0 += C::Bc) {
    cp_async_wait<0>();
    __syncthreads();  // read after write: the tiles of all threads have landed

    // 2. Half 0: S = Q K^T, then P. Half 1: dP = dO V^T.
    float X_reg[C::TM][C::TN];
    product_of_rows<C>(X_reg, first_half ? Q_smem : dO_smem, first_half ? K_smem : V_smem, at);
    if (first_half) {
      finish_scores<C>(X_reg, problem, all.bias, all.bias.values.head(b, h), row0, col0, col0 + C::Bc > seen_by_all, at);
      store_P<C>(P_smem, X_reg, L_smem, at);
    }
    __syncthreads();  // read after write: half 1 reads P of half 0; write after read: nobody reads V_j any more
    if (col0 + C::Bc < seen_by_any) load_async<C, C::Bc>(V_smem, V, col0 + C::Bc, wide);
    cp_async_commit();

    // 3. Half 1: dS = P o (dP - D).
    if (!first_half) store_dS<C>(dS_smem, P_smem, X_reg, D_smem, at);
    __syncthreads();  // read after write: all read dS

    // 4. dQ += dS K.
    add_product_with_K<C>(Z_reg, dS_smem, K_smem, at);
    __syncthreads();  // write after read: the next tile overwrites K, and then dS
    if (col0 + C::Bc < seen_by_any) load_async<C, C::Bc>(K_smem, K, col0 + C::Bc, wide);
    cp_async_commit();
  }
  cp_async_wait<0>();  // if there was no tile of K
  write_dQ<C>(all.dQ.head(b, h), row0, problem.scale, Z_reg, wide, at);
}

template <class C>
void start(const Attention& a) {
  const Problem& p = a.problem;
  const unsigned kv_heads = static_cast<unsigned>(p.B * p.Hkv), heads = static_cast<unsigned>(p.B * p.H);
  const std::size_t shared_bytes = C::SHARED_FLOATS * sizeof(float);
  launch_prepare(a, /*clear_dQ=*/false);
  launch("fa2_dk_dv", {dim3(blocks_for(p.Nk, C::Bc) * kv_heads), dim3(THREADS), shared_bytes}, dk_dv_kernel<C>, p,
         operands_of(a), rows_are_aligned(a));
  launch("fa2_dq", {dim3(blocks_for(p.Nq, C::Br) * heads), dim3(THREADS), shared_bytes}, dq_kernel<C>, p, operands_of(a),
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
    compiled<Shape<64, 64, 64, 8, 16>>("twice as many blocks"),
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
  for (const Compiled* k : kernels_for(a.problem, a.limits)) {
    if (k->tiles == a.tiles) return k->start(a);
  }
}

const Variant variant{.name = "two_kernels",
                      .idea = "dK and dV over tiles of K, dQ over tiles of Q: deterministic, seven products",
                      .forward = fa2_forward::forward,
                      .backward = backward,
                      .workspace = workspace,
                      .refuse = refuse,
                      .tiles = tiles};

}  // namespace
}  // namespace flash::fa2_backward
