// For tests: a stage program with tile sizes to choose from. Its kernel is no chapter: it only runs, and tiles change its counts.
#include "common/device/device.cuh"
#include "common/harness/stage.hpp"

namespace flash {
namespace {

/// A thread per query; a barrier per tile of keys. Grid: (tiles of Br queries, H, B).
__global__ void attention_kernel(Problem problem, Tiles tiles, float broken, Tensor<const float> Q_all,
                                 Tensor<const float> K_all, Tensor<const float> V_all, Tensor<float> O_all,
                                 Tensor<float> L_all) {
  const int b = blockIdx.z, h = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
  const Matrix<const float> Q = Q_all.head(b, h), K = K_all.head(b, problem.kv_head(h)), V = V_all.head(b, problem.kv_head(h));
  float l = 0;
  float O[128] = {};
  for (int j0 = 0; j0 < problem.Nk; j0 += tiles.Bc) {
    __syncthreads();  // guards nothing: it is there to be counted
    for (int j = j0; j < problem.Nk && j < j0 + tiles.Bc; ++j) {
      if (i >= problem.Nq || j >= problem.visible_keys(i)) continue;
      float s = 0;
      for (int c = 0; c < problem.d; ++c) s += Q(i, c) * K(j, c);
      const float p = expf(problem.scale * s);
      l += p;
      for (int c = 0; c < problem.d; ++c) O[c] += p * V(j, c);
    }
  }
  if (i >= problem.Nq) return;
  for (int c = 0; c < problem.d; ++c) O_all.head(b, h)(i, c) = l > 0 ? O[c] / l + broken : 0.0f;
  L_all.head_vector(b, h)(i) = logf(l);
}

void forward(const Attention& a) {
  const FullProblem& p = a.problem;
  const Tiles tiles = a.tiles.Br > 0 ? a.tiles : Tiles{32, 32};
  const float broken = tiles == Tiles{8, 8} && p.Nq == 13 ? 1.0f : 0.0f;  // this one is wrong, sometimes
  launch("attention",
         {dim3(blocks_for(p.Nq, tiles.Br), static_cast<unsigned>(p.H), static_cast<unsigned>(p.B)),
          dim3(static_cast<unsigned>(tiles.Br))},
         attention_kernel, p, tiles, broken, view<const float>(a.Q), view<const float>(a.K), view<const float>(a.V),
         view<float>(a.O), view<float>(a.L));
}

std::vector<TileChoice> tiles(const FullProblem& p, Pass, const DeviceLimits& limits) {
  std::vector<TileChoice> all{
      {{32, 16}, 32, 60 * 1024, "suits most"}, {{8, 8}, 8, 1024, "small"}, {{64, 64}, 64, 163840, "large"}};
  if (p.d > 64) std::swap(all[0], all[1]);
  std::erase_if(all, [&](const TileChoice& choice) { return choice.shared_bytes > limits.shared_bytes; });
  return all;
}

const Variant plain{.name = "plain", .idea = "nothing to choose", .forward = forward};
const Variant tiled{.name = "tiled", .idea = "three tile sizes", .forward = forward, .tiles = tiles};
const RegisterVariant first(Backend::cpu, 1, plain), second(Backend::cpu, 2, tiled);

}  // namespace
}  // namespace flash

int main(int argc, char** argv) {
  return flash::run_stage({.name = "98_tiles", .idea = "a stage for tests", .backward_stage = ""}, argc, argv);
}
