// wgmma on the CPU: the twins of common/machine/wgmma.cuh, which explains them. A product reads shared memory and computes when a wait needs it and
// no thread of the block can go on; until then its accumulators are NaN. Refused, with the line (machine/warpgroups):
//   threads of a warpgroup that ask for different products, or a warp that does not take part
//   a descriptor whose tile does not begin at a multiple of 1024 bytes, or leaves dynamic shared memory
//   registers that were touched since the last wgmma_fence(); accumulators, A in registers and shared memory that are touched in flight
//   accumulators that a wait does not cover; products that nobody has waited for
#pragma once

#include "common/machine/cpu/float16.hpp"
#include "common/machine/cpu/hopper.hpp"
#include "common/machine/isa/wgmma_operand.hpp"

#include <type_traits>

namespace flash {
inline namespace simt {

template <int Rows>
KMajor<Rows> k_major(const void* tile, int row = 0, Site site = Site::here()) {
  return k_major_at<Rows>(shared_address(tile, site), row);
}
template <int Rows>
MnMajor<Rows> mn_major(const void* tile, int col = 0, Site site = Site::here()) {
  return mn_major_at<Rows>(shared_address(tile, site), col);
}

/// One thread's part in a product D [64, n] (+)= A [64, 16] B [16, n].
struct WgmmaThread {
  MmaType type;
  int n;
  bool accumulate;
  Major a_major, b_major;
  WgmmaOperand<Major::k> a, b;  ///< the bits, whatever their major
  const unsigned* a_registers;  ///< null: A lies in shared memory
  float* d;
};

void wgmma_issue(const WgmmaThread&, Site);
void wgmma_fence(Site = Site::here());
void wgmma_commit(Site = Site::here());
/// `count` accumulators at `complete` must have been waited for.
void wgmma_wait_for(int newest, const float* const* complete, int count, Site);

template <class T>
MmaType mma_type() {
  static_assert(std::is_convertible_v<T, float> && sizeof(T) == 2, "wgmma takes fp16 and bf16");
  return is_fp16<T>() ? MmaType::f16 : MmaType::bf16;
}

template <class T, int Registers, Major A, Major B>
void wgmma(float (&d)[Registers], WgmmaOperand<A> a, WgmmaOperand<B> b, bool accumulate, Site site = Site::here()) {
  static_assert(Registers % 8 == 0 && Registers <= 128, "wgmma takes N = 16, 32, ..., 256: 8, 16, ..., 128 registers");
  wgmma_issue({mma_type<T>(), 2 * Registers, accumulate, A, B, {a.low, a.high}, {b.low, b.high}, nullptr, d}, site);
}
template <class T, int Registers, Major B>
void wgmma(float (&d)[Registers], const unsigned (&a)[4], WgmmaOperand<B> b, bool accumulate, Site site = Site::here()) {
  static_assert(Registers % 8 == 0 && Registers <= 128, "wgmma takes N = 16, 32, ..., 256: 8, 16, ..., 128 registers");
  wgmma_issue({mma_type<T>(), 2 * Registers, accumulate, Major::k, B, {}, {b.low, b.high}, a, d}, site);
}

// Site::here() cannot be the default of a parameter that follows a pack: one function for each number of accumulators.
template <int Newest>
void wgmma_wait(Site site = Site::here()) {
  wgmma_wait_for(Newest, nullptr, 0, site);
}
template <int Newest, int R>
void wgmma_wait(float (&d)[R], Site site = Site::here()) {
  const float* const complete[] = {d};
  wgmma_wait_for(Newest, complete, 1, site);
}
template <int Newest, int R1, int R2>
void wgmma_wait(float (&d1)[R1], float (&d2)[R2], Site site = Site::here()) {
  const float* const complete[] = {d1, d2};
  wgmma_wait_for(Newest, complete, 2, site);
}
template <int Newest, int R1, int R2, int R3>
void wgmma_wait(float (&d1)[R1], float (&d2)[R2], float (&d3)[R3], Site site = Site::here()) {
  const float* const complete[] = {d1, d2, d3};
  wgmma_wait_for(Newest, complete, 3, site);
}

}  // namespace simt
}  // namespace flash
