// 04: how large the tiles of step 4 are. Br, Bc: rows of a tile of Q, of K; Tr, Tc: how many tiles.
#pragma once

#include "04_fa1_forward/thread_rows.cuh"
#include "common/machine/warp.cuh"

#include <algorithm>

namespace flash::fa1_forward {
namespace {

constexpr int MAX_Br = 256;  // Br at most: with 255 registers each, more threads do not fit an SM

/// Floats of shared memory: two tiles of Bc rows, two padded ones of Br rows.
FLASH_HOST_DEVICE constexpr std::size_t shared_floats(const Tiles& t, int width) {
  return 2 * static_cast<std::size_t>(t.Bc) * static_cast<std::size_t>(width) +
         2 * static_cast<std::size_t>(t.Br) * static_cast<std::size_t>(width + PAD);
}

/// (4.6)  Line 1 of Algorithm 1: Bc = M/(4d), Br = min(Bc, d), where M is the size of shared memory
/// in floats, so that the tiles of K, V, Q and O take a quarter of it each. Here
/// - row lengths include padding and sizes are rounded down, but Br to no less than 32: the four
///   tiles fit in 64 KB or more;
/// - Br is bounded by MAX_Br. The paper's bound d keeps the Br Bc elements of S within M/4; here S
///   is in registers, GROUP keys at a time, and d threads would be too few to keep an SM busy;
/// - Br is a multiple of the warp size, Bc a multiple of GROUP, and neither is larger than the
///   problem needs.
inline Tiles tiles_of(const Problem& p, const DeviceLimits& limits) {
  const auto round_up = [](int n, int unit) { return (n + unit - 1) / unit * unit; };
  const int M = static_cast<int>(limits.shared_bytes / sizeof(float));
  const int longest = M / (4 * (width_of(p.d) + PAD));
  int Br = std::max(std::min(longest, MAX_Br) / WARP * WARP, WARP);
  int Bc = longest / GROUP * GROUP;
  Br = std::min(Br, round_up(p.Nq, WARP));
  Bc = std::min(Bc, round_up(p.Nk, GROUP));
  return {Br, Bc};
}

}  // namespace
}  // namespace flash::fa1_forward
