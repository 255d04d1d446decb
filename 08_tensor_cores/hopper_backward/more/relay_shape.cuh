// 08 Tensor cores, Hopper backward: what relay.cuh is made of: the tile sizes, the roles, dK and
// dV of wide heads in the registers of a warpgroup.
#pragma once

#include "08_tensor_cores/hopper_backward/more/P_by_rule.cuh"

namespace flash::tensor_cores::hopper_backward_more_relay {
namespace {

/// The tile sizes of one compiled kernel, and which thread holds what. Width: d, rounded up.
template <int Width_, int Br_, int Bc_>
struct RelayShape {
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_;
  static constexpr int QUERY_FRAGMENTS = Br / 8;  // of 8 columns of transposed scores
  static constexpr int STAGES = 2;  // of the ring of Q and dO, by which tiles of P and dS go, too
  static constexpr int DQ_COLS = Width % 128 == 0 ? 128 : 64;  // of dQ at a time
  static constexpr int THREADS = 4 * WARPGROUP;
  // Registers per thread: 2 * 192 + 104 + 24 = 512, the same total as at launch, 4 * 128.
  static constexpr int SUM_REGISTERS = 192, DQ_REGISTERS = 104, PRODUCER_REGISTERS = 24;
  template <class T>
  struct Shared : BackwardShared<T, Width, Br, Bc, STAGES, STAGES> {
    // P^T: four registers per 16 queries and thread.
    alignas(16) unsigned Pt_elements[STAGES][Br / 16 * 4 * WARPGROUP];
    __device__ SharedMatrix<unsigned> Pt(int stage) {
      return {Pt_elements[stage], Br / 16, 4 * WARPGROUP, 4 * WARPGROUP};
    }
    Mbarrier full_Pt[STAGES], empty_Pt[STAGES], full_dSt[STAGES], empty_dSt[STAGES];
    Mbarrier done_K, done_V;
  };
  static constexpr int SHARED_ELEMENTS = sizeof(Shared<short>) / 2;  // of 16 bits
  static constexpr int MIN_SM = 90;

  static_assert(Bc == WARPGROUP_ROWS && Br % WARPGROUP_ROWS == 0 && Width % 32 == 0 && Width > 128,
                "whole products");
  static_assert(ROW_BLOCK % Br == 0, "tiles of queries fill the padded L, D and dQ_accum");
  static_assert(registers_suffice(THREADS, 2 * SUM_REGISTERS + DQ_REGISTERS + PRODUCER_REGISTERS));
};

/// Columns of dQ_accum: d, rounded up.
constexpr int relay_width(int d) { return d <= 160 ? 160 : d <= 192 ? 192 : 256; }

/// What a warpgroup does, by its index.
enum Role { SUM_DV, SUM_DK, SUM_DQ, PRODUCE };

/// dK or dV [16, Width] in each warp, in two pieces: an instruction for all columns would name 128
/// registers, more than ptxas allows in a kernel of 512 threads, whatever setmaxnreg says.
template <class Shape>
struct WideGradient {
  static constexpr int FIRST_COLS = 128, OTHER_COLS = Shape::Width - FIRST_COLS;
  Accumulators<1, FIRST_COLS / 8> first{0.0f};
  Accumulators<1, OTHER_COLS / 8> other{0.0f};

  /// Issues this += A B, B a tile of queries.
  template <class T, class Tile>
  __device__ void issue(const InRegisters<T, 1, Shape::Br / 16>& A, Tile& B) {
    issue_product<T, Shape::Br / 16>(first, A, B.mn_major(0), /*add=*/true);
    issue_product<T, Shape::Br / 16>(other, A, B.mn_major(FIRST_COLS), /*add=*/true);
  }
  template <class T, class Tile>
  __device__ void write(const Matrix<T>& M, int row0, float factor, const Tile& staging) {
    first.each([&](float& x, int) { x *= factor; });
    other.each([&](float& x, int) { x *= factor; });
    write_rows(M, row0, first, staging);
    write_rows(M, row0, other, staging, FIRST_COLS);
  }
};

}  // namespace
}  // namespace flash::tensor_cores::hopper_backward_more_relay
