// Products of a warpgroup, four consecutive warps of which the first is a multiple of four: "Asynchronous Warpgroup Level
// Matrix Multiply-Accumulate Instructions" in the PTX ISA. common/machine/cpu/wgmma.hpp has the same names for the CPU.
//
// D [64, N] = A B, or D += A B, with A [64, 16] and B [16, N] in fp16 or bf16 and fp32 sums. All 128 threads call it. The
// product runs asynchronously: until the warpgroup has waited for its group, D, A in registers and the operands in shared
// memory must not be touched.
//
//   const KMajor<64> Q = k_major<64>(Q_tile);  const KMajor<Bc> K = k_major<Bc>(K_tile);
//   wgmma_fence();                                                                    // S may be used by wgmma from here on
//   for (int kk = 0; kk < d / 16; ++kk) wgmma<__half>(S, Q(kk), K(kk), kk > 0);        // S = Q K^T
//   wgmma_commit();
//   wgmma_wait<0>(S);                                                                 // S may be read
//
// Which thread holds which elements of D: wgmma_row() and wgmma_col() of wgmma_operand.hpp.
#pragma once

#include "common/machine/isa/wgmma_operand.hpp"

#ifndef __CUDACC__
#include "common/machine/cpu/wgmma.hpp"
#else
#include "common/machine/float16.cuh"
#include "common/machine/hopper.cuh"
#include "common/machine/wgmma_shapes.cuh"

namespace flash {
inline namespace gpu {

/// The tile of `Rows` rows at `tile`, from `row` on; the depth runs along its columns.
template <int Rows>
__device__ inline KMajor<Rows> k_major(const void* tile, int row = 0) {
  return k_major_at<Rows>(shared_address(tile), row);
}
/// The tile of `Rows` rows at `tile`, from column `col` on; the depth runs down its rows.
template <int Rows>
__device__ inline MnMajor<Rows> mn_major(const void* tile, int col = 0) {
  return mn_major_at<Rows>(shared_address(tile), col);
}

/// Required after ordinary code has touched registers of D or A, and before a product into other accumulators than the last
/// one's; otherwise ptxas inserts a fence and a wait (its messages C7519 and C7517).
__device__ inline void wgmma_fence() { FLASH_SM90A("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Closes a group: the products since the previous group.
__device__ inline void wgmma_commit() { FLASH_SM90A("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/// Waits until all but the Newest groups are complete. The accumulators named here belong to complete groups and may be touched.
template <int Newest, int... Registers>
__device__ inline void wgmma_wait(float (&... complete)[Registers]) {
  FLASH_SM90A("wgmma.wait_group.sync.aligned %0;" ::"n"(Newest) : "memory");
  // The compiler does not know that the registers have changed. Counted by an index: nvcc unrolls a loop over references only in
  // part in some kernels, which then hold the accumulators in local memory.
  const auto changed = []<int N>(float(&registers)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(registers[i])::"memory");
  };
  (changed(complete), ...);
}

/// D (+)= A B, both in shared memory. T: __half or __nv_bfloat16; N is twice the registers of D, one of those in
/// wgmma_shapes.cuh.
template <class T, int Registers, Major A, Major B>
__device__ inline void wgmma(float (&d)[Registers], WgmmaOperand<A> a, WgmmaOperand<B> b, bool accumulate) {
  WgmmaShape<Registers>::template product<T, A == Major::mn, B == Major::mn>(d, wgmma_descriptor(a), wgmma_descriptor(b),
                                                                             accumulate);
}
/// D (+)= A B with A in registers: four per 16 columns, in the layout of mma.m16n8k16.
template <class T, int Registers, Major B>
__device__ inline void wgmma(float (&d)[Registers], const unsigned (&a)[4], WgmmaOperand<B> b, bool accumulate) {
  WgmmaShape<Registers>::template product<T, B == Major::mn>(d, a, wgmma_descriptor(b), accumulate);
}

}  // namespace gpu
}  // namespace flash

#undef FLASH_SM90A
#endif
