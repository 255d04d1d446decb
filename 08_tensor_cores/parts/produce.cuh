// 08 Tensor cores, Hopper backward, from step 2 on: the producer.
#pragma once

#include "08_tensor_cores/parts/panels_backward.cuh"

namespace flash::tensor_cores {
namespace {

/// One thread: tiles of queries, each as soon as its buffer is empty; K and V with the first. The
/// first `requested` tiles are on their way already.
template <class T, class Shape, class Work>
__device__ void produce(Shared<T, Shape>& shared, const BackwardMaps& maps, const Problem& problem,
                        const Tensor<const float>& L_and_D, const Work& work, int requested = 0) {
  PipelineState<Shape::STAGES> ring;
  auto at = work.first(problem);
  for (int iteration = 0; iteration < work.iterations;
       ++iteration, at = work.after(problem, at), ring.next()) {
    if (iteration < requested) continue;
    // Write after read: no consumer still reads the previous tiles.
    wait_empty(shared.empty[ring.stage()], ring.parity());
    shared.load_tiles(ring.stage(), maps, work, at, /*first=*/iteration == 0);
    shared.load_stats(ring.stage(), L_and_D, work.b, at);
  }
}

}  // namespace
}  // namespace flash::tensor_cores
