#include "common/simt/machine/tensor_core.hpp"

#include "common/attention/float16.hpp"
#include "common/simt/shared_view.hpp"
#include "common/simt/thread.hpp"

namespace flash::machine {
namespace {

/// The lower and the upper number of a register.
float decode(MmaType type, unsigned two, int which) {
  const auto bits = static_cast<std::uint16_t>(two >> 16 * which);
  return type == MmaType::f16 ? half_to_float(bits) : bfloat16_to_float(bits);
}

}  // namespace

std::uint64_t ldmatrix(const std::array<LdmatrixLane*, 32>& lanes, const std::array<Site, 32>& sites) {
  const LdmatrixLane& first = *lanes[0];
  std::array<const std::byte*, 32> rows{};
  for (std::size_t i = 0; i < 32; ++i) {
    const LdmatrixLane& lane = *lanes[i];
    if (lane.count != first.count || lane.trans != first.trans)
      simt::fail(sites[i], "ldmatrix: the lanes ask for different shapes");
    if (i >= static_cast<std::size_t>(8 * lane.count)) break;
    if (reinterpret_cast<std::uintptr_t>(lane.row) % 16 != 0) {
      simt::fail_misaligned(("ldmatrix's row of lane " + std::to_string(i)).c_str(), lane.row, 16, sites[i]);
    }
    simt::check_dynamic_shared(lane.row, 16, sites[i]);
    rows[i] = static_cast<const std::byte*>(lane.row);
  }
  std::uint64_t conflicts = 0;
  for (std::size_t m = 0; m < static_cast<std::size_t>(first.count); ++m) {
    WarpAccess phase;
    phase.lanes = 0xffu;
    for (std::size_t row = 0; row < 8; ++row) phase.address[row] = reinterpret_cast<std::uintptr_t>(rows[8 * m + row]);
    conflicts += bank_conflicts(phase, 16);
    for (std::size_t i = 0; i < 32; ++i) {
      const std::size_t g = i / 4, t = i % 4;
      if (first.trans) {  // M(2t, g) and M(2t+1, g)
        lanes[i]->source[2 * m] = rows[8 * m + 2 * t] + 2 * g;
        lanes[i]->source[2 * m + 1] = rows[8 * m + 2 * t + 1] + 2 * g;
      } else {  // M(g, 2t..2t+1)
        lanes[i]->source[m] = rows[8 * m + g] + 4 * t;
      }
    }
  }
  return conflicts;
}

std::uint64_t mma(const std::array<MmaLane*, 32>& lanes, const std::array<Site, 32>& sites) {
  const MmaLane& first = *lanes[0];
  const auto depth = static_cast<std::size_t>(first.depth);
  float A[16][16], B[16][8], D[16][8];
  for (std::size_t i = 0; i < 32; ++i) {
    const MmaLane& lane = *lanes[i];
    if (lane.depth != first.depth || lane.type != first.type)
      simt::fail(sites[i], "mma: the lanes ask for different shapes or types");
    const std::size_t g = i / 4, t = i % 4;
    for (std::size_t half = 0; half < depth / 8; ++half) {  // of the depth
      for (int pair = 0; pair < 2; ++pair) {
        const std::size_t k = 8 * half + 2 * t + static_cast<std::size_t>(pair);
        A[g][k] = decode(lane.type, lane.a[2 * half], pair);
        A[g + 8][k] = decode(lane.type, lane.a[2 * half + 1], pair);
        B[k][g] = decode(lane.type, lane.b[half], pair);
      }
    }
    for (std::size_t j = 0; j < 4; ++j) D[g + 8 * (j / 2)][2 * t + j % 2] = lane.c[j];
  }
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t col = 0; col < 8; ++col) {
      double sum = double{D[row][col]};
      for (std::size_t k = 0; k < depth; ++k) sum += double{A[row][k]} * double{B[k][col]};
      D[row][col] = static_cast<float>(sum);
    }
  }
  for (std::size_t i = 0; i < 32; ++i) {
    const std::size_t g = i / 4, t = i % 4;
    for (std::size_t j = 0; j < 4; ++j) lanes[i]->d[j] = D[g + 8 * (j / 2)][2 * t + j % 2];
  }
  return 16 * 8 * depth;
}

}  // namespace flash::machine
