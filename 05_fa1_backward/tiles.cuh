// 05: how large tiles are, where they are in shared memory, and their loads with several in flight.
#pragma once

#include "04_fa1_forward/thread_rows.cuh"

#include <algorithm>

namespace flash::fa1_backward {
namespace {

using fa1_forward::PAD, fa1_forward::width_of;

constexpr int MAX_Bc = 64;          // the tiles of P and dS grow with Bc squared
constexpr int MAX_Br = 2 * MAX_Bc;  // Br at most: see tiles_of()
constexpr int LOADS_IN_FLIGHT = 8;  // per thread: otherwise 4 warps are too few to hide the latency

/// Floats of shared memory for such tiles.
FLASH_HOST_DEVICE constexpr int shared_floats(const Tiles& t, int width) {
  return (4 * t.Bc + 2 * t.Br) * (width + PAD) + 2 * t.Br * (t.Bc + PAD);
}

/// Shared memory of a block. Rows are padded: neighbouring threads read 16 bytes of neighbouring
/// rows.
struct SharedTiles {
  SharedMatrix<float> K, V, dK, dV;  // [Bc, Width]
  SharedMatrix<float> Q, dO;         // [Br, Width]
  SharedMatrix<float> P, dS;         // [Br, Bc]
};

template <int Width>
__device__ SharedTiles shared_tiles(const Tiles& t) {
  float* next = dynamic_shared<float>(shared_floats(t, Width));
  const auto take = [&next](int rows, int cols) {
    const SharedMatrix<float> tile{next, rows, cols, cols + PAD};
    next += rows * (cols + PAD);
    return tile;
  };
  const auto of_keys = [&] { return take(t.Bc, Width); };
  const auto of_queries = [&] { return take(t.Br, Width); };
  const auto of_pairs = [&] { return take(t.Br, t.Bc); };
  return {.K = of_keys(),
          .V = of_keys(),
          .dK = of_keys(),
          .dV = of_keys(),
          .Q = of_queries(),
          .dO = of_queries(),
          .P = of_pairs(),
          .dS = of_pairs()};
}

/// (5.8)  For M floats of shared memory the paper takes Bc = M/(4d), Br = min(Bc, d), which ignores
/// P, dS, dK and dV. Here Br = 2 Bc, a thread per row of dV and one per row of dK, and Bc is the
/// largest multiple of 16 for which all arrays fit, up to MAX_Bc and no larger than the problem
/// needs. (Where not even 16 fits, d > 96 in 64 KB, half of the threads idle in phase C.)
inline Tiles tiles_of(const Problem& p, const DeviceLimits& limits) {
  const int M = static_cast<int>(limits.shared_bytes / sizeof(float));
  const int needed = std::max(p.Nk, (p.Nq - 1) / 2 + 1);
  int Bc = needed >= MAX_Bc ? MAX_Bc : (needed + 15) / 16 * 16;
  while (Bc > 0 && shared_floats({2 * Bc, Bc}, width_of(p.d)) > M) Bc -= 16;
  return Bc > 0 ? Tiles{2 * Bc, Bc} : Tiles{32, 8};
}

/// As load_tile() of chapter 04, with the same elements per thread, but with LOADS_IN_FLIGHT loads
/// before the first wait.
template <int Width, class T>
__device__ void load_tile_ahead(const SharedMatrix<float>& tile, const Matrix<T>& M, int row0) {
  constexpr int PER_ROW = Width / 4;  // float4
  const int count = tile.rows * PER_ROW;
  for (int first = threadIdx.x; first < count; first += LOADS_IN_FLIGHT * blockDim.x) {
    float4 loaded[LOADS_IN_FLIGHT];
#pragma unroll
    for (int k = 0; k < LOADS_IN_FLIGHT; ++k) {
      const int e = first + k * blockDim.x, row = row0 + e / PER_ROW;
      const bool inside = e < count && row < M.rows;
      loaded[k] = inside ? fa1_forward::read_four(M, row, e % PER_ROW * 4) : float4{};
    }
#pragma unroll
    for (int k = 0; k < LOADS_IN_FLIGHT; ++k) {
      const int e = first + k * blockDim.x;
      if (e < count) tile.as<float4>(e / PER_ROW, e % PER_ROW * 4) = loaded[k];
    }
  }
}

}  // namespace
}  // namespace flash::fa1_backward
