// 08 Tensor cores, Hopper backward, for wide heads: warpgroups share products and hand P and dS on.
//
// New since step 2, `ring`: three consumer warpgroups divide the products, not the keys. Almost
// every line differs, so read this file by itself.
// - The reason: dK and dV of 64 keys take d registers per thread, at d = 256 more than it has. Here
//   a thread sums one gradient only, in d / 2 registers.
//     dV:  S^T = K Q^T,    P^T   -> shared memory,    dV += P^T dO       (8.11), (8.14)
//     dK:  dP^T = V dO^T,  dS^T  -> shared memory,    dK += dS^T Q       (8.12), (8.13), (8.15)
//     dQ:                                             dQ += dS K         (8.16)
// - P^T and dS^T have two buffers each. P^T needs no layout: thread t of the dK warpgroup needs
//   exactly the elements that thread t of the dV warpgroup has. dS therefore uses P as rounded for
//   dV, not in fp32 as in step 2.
// - No barrier in the loop: a warpgroup waits for what it needs, and can be two tiles ahead of the
//   next one. While the dV warpgroup computes exponentials the other two multiply.
// - The rule by which products become P is a parameter (P_by_rule.cuh), so that plain problems
//   go without a bias in the loop.
//
// Grid, HBM: as step 1. Block: four warpgroups, one per Role.  Workspace: L and D; dQ_accum.
// Shapes: all; d is padded with zeros to 160, 192 or 256. Needs sm_90a.
#pragma once

#include "08_tensor_cores/hopper_backward/more/relay_shape.cuh"

namespace flash::tensor_cores::hopper_backward_more_relay {
namespace {

/// The dV warpgroup: P^T, which it hands on, and dV. Returns dV.
template <class T, class Shape, class Rule>
__device__ auto sum_dV(Shared<T, Shape>& shared, const Rule& rule, const KeyWork<Shape>& work) {
  const Problem& problem = rule.problem;
  const auto K_rows = shared.K.below(0);  // all of them
  const int thread = threadIdx.x % WARPGROUP,
            warp_row = thread / WARP * 16;  // the warp's first row of the tile
  WideGradient<Shape> dV;

  auto at = work.first(problem);  // a tile of queries: its head h and its first query, query0
  for (int iteration = 0; iteration < work.iterations; ++iteration, at = work.after(problem, at)) {
    const int stage = iteration % Shape::STAGES, parity = iteration / Shape::STAGES % 2;
    // 1. P^T.
    Accumulators<1, Shape::QUERY_FRAGMENTS> St;  // transposed: [16, Br] in each warp
    // Read after write: Q_i and L_i have landed, and with the first Q also K.
    wait_full(shared.full_Q[stage], parity);
    issue_scores(St, K_rows, shared.Q[stage]);  // (8.11)
    // Read after write: S^T is complete.
    wgmma_wait<0>(registers(St));
    recompute_P_by_rule(rule, St, shared.template stats<L_IN_POWERS_OF_2<Rule>>(stage),
                        work.b * problem.H + at.h, at.query0, work.key0 + warp_row);
    auto& Pt = St;  // in the same registers
    const InRegisters<T, 1, Shape::Br / 16> Pt_reg(Pt);

    // 2. P^T for the dK warpgroup.
    // Write after read: it has read the P^T of two tiles ago.
    wait_empty(shared.empty_Pt[stage], parity);
#pragma unroll
    for (int k = 0; k < Shape::Br / 16; ++k) {
      const unsigned(&block)[4] = Pt_reg(k);
      shared.Pt(stage).template as<uint4>(k, 4 * thread) =
          make_uint4(block[0], block[1], block[2], block[3]);
    }
    commit(shared.full_Pt[stage]);

    // 3. dV += P^T dO.
    // Read after write: dO_i has landed.
    wait_full(shared.full_dO[stage], parity);
    // Read after write: P^T has been packed.
    wgmma_fence();
    dV.issue(Pt_reg, shared.dO[stage]);  // (8.14)
    wgmma_commit();
    // Write after read: this warp's products have read Q_i and dO_i.
    wgmma_wait<0>(registers(dV.first), registers(dV.other));
    release(shared.empty[stage]);
  }
  // Write after read: this warp's products have read K; the dK warpgroup stages dK there.
  arrive_warp(shared.done_K);
  return dV;
}

/// The dK warpgroup: dS^T, which it hands on, and dK. Returns dK without the scale.
template <class T, class Shape>
__device__ auto sum_dK(Shared<T, Shape>& shared, const KeyWork<Shape>& work) {
  const auto V_rows = shared.V.below(0);  // all of them
  const int thread = threadIdx.x % WARPGROUP, warp_row = thread / WARP * 16;
  WideGradient<Shape> dK;
  for (int iteration = 0; iteration < work.iterations; ++iteration) {
    const int stage = iteration % Shape::STAGES, parity = iteration / Shape::STAGES % 2;
    // 1. dS^T.
    Accumulators<1, Shape::QUERY_FRAGMENTS> dPt;  // transposed: [16, Br] in each warp
    // Read after write: dO_i and D_i have landed, and with the first dO also V.
    wait_full(shared.full_dO[stage], parity);
    issue_scores(dPt, V_rows, shared.dO[stage]);  // (8.12)
    // Read after write: dP^T is complete.
    wgmma_wait<0>(registers(dPt));
    // Read after write: the dV warpgroup has stored P^T.
    wait_full(shared.full_Pt[stage], parity);
    dPt.each_at([&](float& dp, int, int query) { dp -= shared.stats(stage).D(query); });  // (8.13)
#pragma unroll
    for (int k = 0; k < Shape::Br / 16; ++k) {
      multiply_block<T>(dPt, 0, k, shared.Pt(stage).template as<uint4>(k, 4 * thread));
    }
    auto& dSt = dPt;  // in the same registers
    // Write after read: this warp has read P^T; the dV warpgroup may overwrite it.
    release(shared.empty_Pt[stage]);
    const InRegisters<T, 1, Shape::Br / 16> dSt_reg(dSt);

    // 2. dS^T for the dQ warpgroup.
    // Write after read: it has read the dS^T of two tiles ago.
    wait_empty(shared.empty_dSt[stage], parity);
    store_operand(shared.dSt[stage].below(warp_row).left(), dSt_reg);
    // Read after write: this thread's dS^T becomes visible to wgmma (async proxy).
    fence_proxy_async();
    commit(shared.full_dSt[stage]);

    // 3. dK += dS^T Q.
    // Read after write: Q_i has landed.
    wait_full(shared.full_Q[stage], parity);
    // Read after write: dS^T has been packed.
    wgmma_fence();
    dK.issue(dSt_reg, shared.Q[stage]);  // (8.15)
    wgmma_commit();
    // Write after read: this warp's products have read dO_i and Q_i.
    wgmma_wait<0>(registers(dK.first), registers(dK.other));
    release(shared.empty[stage]);
  }
  // Write after read: this warp's products have read V; the dV warpgroup stages dV there.
  arrive_warp(shared.done_V);
  return dK;
}

/// The dQ warpgroup: dQ, some columns at a time, which it adds to the sum in HBM.
template <class T, class Shape>
__device__ void sum_dQ(Shared<T, Shape>& shared, const Problem& problem,
                       const Tensor<float>& dQ_accum, const KeyWork<Shape>& work) {
  const int warp_row = threadIdx.x % WARPGROUP / WARP * 16, lane = threadIdx.x % WARP;

  auto at = work.first(problem);  // a tile of queries: its head h and its first query, query0
  for (int iteration = 0; iteration < work.iterations; ++iteration, at = work.after(problem, at)) {
    const int stage = iteration % Shape::STAGES, parity = iteration / Shape::STAGES % 2;
    // Read after write: the dK warpgroup has stored dS^T. K has landed: dS^T comes from it.
    wait_full(shared.full_dSt[stage], parity);
#pragma unroll 1  // the registers hold one dQ at a time
    for (int col = 0; col < Shape::Width; col += Shape::DQ_COLS) {
      // dQ = dS K   [Br, Bc] x [Bc, d]. In both tiles rows are keys, and the sum runs down them:
      // MN-major.
      Accumulators<1, Shape::DQ_COLS / 8> dQ;
      // Write after read: the previous dQ, in the same registers, has been added.
      wgmma_fence();
      issue_product<T, Shape::Bc / 16>(dQ, shared.dSt[stage].mn_major(), shared.K.mn_major(col),
                                       /*add=*/false);  // (8.16)
      wgmma_commit();
      // Read after write: dQ is complete.
      wgmma_wait<0>(registers(dQ));
      const auto first =
          dQ_accum.head(work.b, at.h)
              .address(0, ((at.query0 + warp_row) / 16 * (Shape::Width / 8) + col / 8) * 4 * WARP +
                              4 * lane);
#pragma unroll
      for (int n = 0; n < Shape::DQ_COLS / 8; ++n) {
        if (Shape::Width % Shape::DQ_COLS != 0 && col + 8 * n >= Shape::Width) break;
        const float(&dq)[4] = dQ.elements[0][n];
        atomic_add4(first + 4 * n * WARP, make_float4(dq[0], dq[1], dq[2], dq[3]));
      }
    }
    // Write after read: this warp's products have read dS^T; the dK warpgroup may overwrite it.
    release(shared.empty_dSt[stage]);
  }
  // Write after read: this warp's products have read K; the dK warpgroup stages dK there.
  arrive_warp(shared.done_K);
}

template <class T, class Shape, class Rule>
__global__ void __launch_bounds__(Shape::THREADS, 1)
    backward_kernel(Rule rule, const __grid_constant__ BackwardMaps maps, BackwardTensors<T> hbm,
                    Tensor<float> dQ_accum, int heads_at_once) {
  if constexpr (!COMPILED_WITH_WGMMA) return __trap();  // no wgmma here: never launched
  auto& shared = shared_of_block<T, Shape>();
  const KeyWork<Shape> work(rule.problem, heads_at_once, blockIdx.x);
  const int warp_row = threadIdx.x % WARPGROUP / WARP * 16;
  if (threadIdx.x == 0) {
    // A tile of P or dS is stored and read by four warps. Before initialize(), whose fence
    // publishes these mbarriers too.
    for (Mbarrier* const ring :
         {shared.full_Pt, shared.empty_Pt, shared.full_dSt, shared.empty_dSt})
      for (int stage = 0; stage < Shape::STAGES; ++stage) init_for_warps(ring[stage], 4);
    init_for_warps(shared.done_K, 2 * 4);        // K is read by the dV and the dQ warpgroup
    init_for_warps(shared.done_V, 4);            // V by the dK warpgroup
    shared.initialize(/*reading_warps=*/2 * 4);  // of the dV and the dK warpgroup
  }
  // Read after write: all threads see the initialised mbarriers. From here on roles differ: no more
  // block-wide barriers.
  __syncthreads();

  switch (warpgroup()) {
    case SUM_DV: {
      setmaxnreg_inc<Shape::SUM_REGISTERS>();
      auto dV = sum_dV<T>(shared, rule, work);
      // Write after read: nobody reads V any more; dV is staged there.
      mbarrier_wait(shared.done_V, 0);
      dV.write(hbm.dV.head(work.b, work.kv_head), work.key0 + warp_row, 1.0f,
               shared.V.below(warp_row));
      break;
    }
    case SUM_DK: {
      setmaxnreg_inc<Shape::SUM_REGISTERS>();
      auto dK = sum_dK<T>(shared, work);
      // Write after read: nobody reads K any more; dK is staged there.
      mbarrier_wait(shared.done_K, 0);
      dK.write(hbm.dK.head(work.b, work.kv_head), work.key0 + warp_row, rule.problem.scale,
               shared.K.below(warp_row));
      break;
    }
    case SUM_DQ:
      setmaxnreg_dec<Shape::DQ_REGISTERS>();
      sum_dQ<T>(shared, rule.problem, dQ_accum, work);
      break;
    case PRODUCE:
      setmaxnreg_dec<Shape::PRODUCER_REGISTERS>();
      if (threadIdx.x % WARPGROUP < WARP && elect_one())
        produce<T, Shape>(shared, maps, rule.problem, hbm.L_and_D, work);
  }
}

template <class Shape>
void start(Shape, const Attention& a) {
  in_type_of(a, [&]<class T>(T) {
    const Problem& p = a.problem;
    const TensorRef& dQ_accum = a.workspace("dQ_accum");
    const int tiles = static_cast<int>(blocks_for(p.Nk, Shape::Bc)), blocks = tiles * p.B * p.Hkv;
    by_rule(a, [&]<class Rule>(const Rule& rule) {
      const auto hbm = prepare<T, Shape::Width, L_IN_POWERS_OF_2<Rule>>(a, &dQ_accum);
      launch("backward_relay",
             {dim3(static_cast<unsigned>(blocks)), dim3(Shape::THREADS),
              Shape::SHARED_ELEMENTS * sizeof(T)},
             backward_kernel<T, Shape, Rule>, rule, backward_maps<Shape>(a), hbm,
             view<float>(dQ_accum), heads_in_a_wave(a, tiles));
    });
    convert<T, Shape::Width>(a, dQ_accum);
  });
}

constexpr CompiledShape shapes[] = {
    compiled<RelayShape<160, 64, 64>>("one warpgroup per role"),
    compiled<RelayShape<192, 64, 64>>("one warpgroup per role"),
    compiled<RelayShape<256, 64, 64>>("one warpgroup per role"),
};

const Variant variant = [] {
  Variant step = general_hopper_backward_step<shapes>(
      "relay", "warpgroups share products, not keys, and hand P and dS on: for wide heads",
      is_fastest<BackwardKernel::relay>);
  step.refuse = [](const Problem& p) { return refuse_backward_with_sum(p, relay_width(p.d)); };
  step.workspace = [](const Problem& p, Pass pass) {
    return workspace_with_sum(p, pass, relay_width(p.d));
  };
  return step;
}();

}  // namespace
}  // namespace flash::tensor_cores::hopper_backward_more_relay
