// 08 Tensor cores, Hopper backward: the producer of steps 2 to 4.
#pragma once

#include "08_tensor_cores/parts/panels_backward.cuh"

namespace flash::tensor_cores {
namespace {

/// One thread: K and V, then tiles of queries, each as soon as its buffer is empty.
template <class T, class Shape, class Work>
__device__ void produce(Shared<T, Shape>& shared, const BackwardMaps& maps, const Problem& problem,
                        const Tensor<const float>& L_and_D, const Work& work) {
  shared.load_KV(maps, work.b, work.kv_head, work.key0);
  PipelineState<Shape::STAGES> state;
  auto at = work.first(problem);
  for (int iteration = 0; iteration < work.iterations;
       ++iteration, at = work.after(problem, at), state.next()) {
    // Write after read: no consumer still reads the previous tiles.
    wait_empty(shared.empty[state.stage()], state.parity());
    shared.load_queries(state.stage(), maps, L_and_D, work.b, at);
  }
}

}  // namespace
}  // namespace flash::tensor_cores
