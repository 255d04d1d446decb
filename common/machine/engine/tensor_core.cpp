#include "common/machine/engine/tensor_core.hpp"

#include "common/machine/cpu/shared_view.hpp"
#include "common/machine/cpu/thread.hpp"
#include "common/machine/isa/fragments.hpp"

#include <bit>

namespace flash::machine {
namespace {

/// A number of type fp16, without a branch and in signed arithmetic, so that the compiler decodes several at once. A subnormal one is a
/// whole number of 2^-24: no subnormal float appears, which would cost about a hundred cycles.
float decode_f16(std::int32_t bits) {
  constexpr std::int32_t bias = (127 - 15) << 23;
  const std::int32_t magnitude = bits & 0x7FFF;
  const std::int32_t normal = (magnitude << 13) + bias + (magnitude >= 0x7C00 ? bias : 0);  // infinity and NaN stay so
  const auto subnormal = std::bit_cast<std::int32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  const std::int32_t is_subnormal = -static_cast<std::int32_t>(magnitude < 0x400);  // all bits or none
  return std::bit_cast<float>((bits & 0x8000) << 16 | (is_subnormal & subnormal) | (~is_subnormal & normal));
}

/// The lower (which = 0) or the upper numbers of an operand's words.
template <int Count>
void decode(MmaType type, const std::int32_t* words, int which, double (&numbers)[Count]) {
  if (type == MmaType::f16) {
    for (int i = 0; i < Count; ++i) numbers[i] = double{decode_f16(words[i] >> 16 * which & 0xFFFF)};
  } else {
    for (int i = 0; i < Count; ++i) {
      numbers[i] = double{std::bit_cast<float>(which == 0 ? words[i] << 16 : words[i] & ~0xFFFF)};
    }
  }
}

/// Extra cycles of eight rows of 16 bytes: none if they lie in the eight groups of four banks, one in each.
std::uint64_t conflicts_of_rows(const std::byte* const* rows) {
  unsigned groups = 0;
  for (int row = 0; row < 8; ++row) groups |= 1u << (reinterpret_cast<std::uintptr_t>(rows[row]) / 16 % 8);
  if (groups == 0xFFu) return 0;
  WarpAccess phase;
  phase.lanes = 0xFFu;
  for (std::size_t row = 0; row < 8; ++row) phase.address[row] = reinterpret_cast<std::uintptr_t>(rows[row]);
  return bank_conflicts(phase, 16);
}

}  // namespace

std::uint64_t ldmatrix(const char* name, const std::array<LdmatrixLane*, 32>& lanes, const std::array<Site, 32>& sites) {
  const LdmatrixLane& first = *lanes[0];
  std::array<const std::byte*, 32> rows{};
  for (std::size_t i = 0; i < 32; ++i) {
    const LdmatrixLane& lane = *lanes[i];
    if (lane.count != first.count || lane.trans != first.trans)
      simt::fail(RuleId::bad_argument, sites[i], std::string(name) + ": the lanes ask for different shapes");
    if (i >= static_cast<std::size_t>(8 * lane.count)) break;
    if (reinterpret_cast<std::uintptr_t>(lane.row) % 16 != 0) {
      simt::fail_misaligned((name + ("'s row of lane " + std::to_string(i))).c_str(), lane.row, 16, sites[i]);
    }
    simt::check_dynamic_shared(lane.row, 16, sites[i]);
    rows[i] = static_cast<const std::byte*>(lane.row);
  }
  std::uint64_t conflicts = 0;
  for (std::size_t m = 0; m < static_cast<std::size_t>(first.count); ++m) {
    conflicts += conflicts_of_rows(&rows[8 * m]);
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
  std::int32_t A_words[16 * 8] = {}, B_words[8 * 8] = {};  // pairs along the depth: A(row, 2j..2j+1), B(2j..2j+1, col)
  double D[16][8];
  for (int i = 0; i < 32; ++i) {
    const MmaLane& lane = *lanes[static_cast<std::size_t>(i)];
    if (lane.depth != depth || lane.type != first.type)
      simt::fail(RuleId::bad_argument, sites[static_cast<std::size_t>(i)], "mma: the lanes ask for different shapes or types");
    for (int r = 0; r < depth / 4; ++r) {
      A_words[8 * fragment::a_row(i, r) + fragment::a_col(i, r) / 2] = static_cast<std::int32_t>(lane.a[r]);
    }
    for (int r = 0; r < depth / 8; ++r) {
      B_words[8 * (fragment::b_row(i, r) / 2) + fragment::b_col(i)] = static_cast<std::int32_t>(lane.b[r]);
    }
    for (int r = 0; r < 4; ++r) D[fragment::c_row(i, r)][fragment::c_col(i, r)] = double{lane.c[r]};
  }
  double A[2][16 * 8], B[2][8 * 8];  // [0]: even columns of A, even rows of B; [1]: odd ones
  for (int which = 0; which < 2; ++which) {
    decode(first.type, A_words, which, A[which]);
    decode(first.type, B_words, which, B[which]);
  }
  for (int row = 0; row < 16; ++row) {
    for (int j = 0; j < depth / 2; ++j) {
      for (int which = 0; which < 2; ++which) {
        for (int col = 0; col < 8; ++col) D[row][col] += A[which][8 * row + j] * B[which][8 * j + col];
      }
    }
  }
  for (int i = 0; i < 32; ++i) {
    for (int r = 0; r < 4; ++r) {
      lanes[static_cast<std::size_t>(i)]->d[r] = static_cast<float>(D[fragment::c_row(i, r)][fragment::c_col(i, r)]);
    }
  }
  return 16 * 8 * static_cast<std::uint64_t>(depth);
}

}  // namespace flash::machine
