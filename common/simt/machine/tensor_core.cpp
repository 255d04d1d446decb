#include "common/simt/machine/tensor_core.hpp"

#include "common/attention/float16.hpp"
#include "common/device/fragments.hpp"
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
    const auto element = [&](int row, int col) { return rows[8 * m + static_cast<std::size_t>(row)] + 2 * col; };
    for (int i = 0; i < 32; ++i) {
      LdmatrixLane& lane = *lanes[static_cast<std::size_t>(i)];
      if (first.trans) {  // two halves from two rows
        for (int which = 0; which < 2; ++which) {
          lane.source[2 * m + static_cast<std::size_t>(which)] =
              element(fragment::ldmatrix_trans_row(i, which), fragment::ldmatrix_trans_col(i));
        }
      } else {  // two neighbours, one word
        lane.source[m] = element(fragment::ldmatrix_row(i), fragment::ldmatrix_col(i, 0));
      }
    }
  }
  return conflicts;
}

std::uint64_t mma(const std::array<MmaLane*, 32>& lanes, const std::array<Site, 32>& sites) {
  const MmaLane& first = *lanes[0];
  const int depth = first.depth;
  float A[16][16], B[16][8], D[16][8];
  for (int i = 0; i < 32; ++i) {
    const MmaLane& lane = *lanes[static_cast<std::size_t>(i)];
    if (lane.depth != depth || lane.type != first.type)
      simt::fail(sites[static_cast<std::size_t>(i)], "mma: the lanes ask for different shapes or types");
    for (int which = 0; which < 2; ++which) {
      for (int r = 0; r < depth / 4; ++r) {
        A[fragment::a_row(i, r)][fragment::a_col(i, r, which)] = decode(lane.type, lane.a[r], which);
      }
      for (int r = 0; r < depth / 8; ++r)
        B[fragment::b_row(i, r, which)][fragment::b_col(i)] = decode(lane.type, lane.b[r], which);
    }
    for (int r = 0; r < 4; ++r) D[fragment::c_row(i, r)][fragment::c_col(i, r)] = lane.c[r];
  }
  for (int row = 0; row < 16; ++row) {
    for (int col = 0; col < 8; ++col) {
      double sum = double{D[row][col]};
      for (int k = 0; k < depth; ++k) sum += double{A[row][k]} * double{B[k][col]};
      D[row][col] = static_cast<float>(sum);
    }
  }
  for (int i = 0; i < 32; ++i) {
    for (int r = 0; r < 4; ++r) lanes[static_cast<std::size_t>(i)]->d[r] = D[fragment::c_row(i, r)][fragment::c_col(i, r)];
  }
  return 16 * 8 * static_cast<std::uint64_t>(depth);
}

}  // namespace flash::machine
