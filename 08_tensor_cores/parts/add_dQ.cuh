// 08 Tensor cores, Hopper backward, from step 3 on: the adder.
#pragma once

#include "08_tensor_cores/parts/panels_backward.cuh"

namespace flash::tensor_cores {
namespace {

/// One thread: adds tiles of dQ to dQ_accum, each as soon as the consumers have stored it. It may
/// end while additions are in flight: the TMA has read shared memory, and the kernel as a whole
/// ends only when they are complete, which convert_kernel waits for.
template <class T, class Shape, class Work>
__device__ void add_dQ(Shared<T, Shape>& shared, const Problem& problem,
                       const Tensor<float>& dQ_accum, const Work& work) {
  constexpr int BYTES = 4 * Shape::Br * Shape::Width;
  PipelineState<Shape::DQ_STAGES> ring;
  auto at = work.first(problem);  // a tile of queries: its head h and its first query, query0
  for (int iteration = 0; iteration < work.iterations;
       ++iteration, at = work.after(problem, at), ring.next()) {
    // Read after write: dQ_i is complete.
    wait_full(shared.full_dQ[ring.stage()], ring.parity());
    const auto target = dQ_accum.head(work.b, at.h).address(0, at.query0 * Shape::Width);
    bulk_reduce_add(target, shared.dQ[ring.stage()], BYTES);
    bulk_commit();
    // Write after read: the TMA has read dQ_i, whose buffer the consumers fill next.
    bulk_wait_read<0>();
    mbarrier_arrive(shared.empty_dQ[ring.stage()]);
  }
}

}  // namespace
}  // namespace flash::tensor_cores
