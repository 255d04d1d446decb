// Instructions for which CUDA C++ has no function, each wrapped in one. common/machine/cpu/ptx.hpp has the same names for the CPU.
//
// Fragments: how the 32 lanes of a warp hold a tile, with g = lane / 4 and t = lane % 4. A register holds two 16-bit elements,
// the one with the lower column (A) or row (B) in the lower half (PTX ISA, "Matrix Fragments for mma.m16n8k16 / m16n8k8";
// fragments.hpp has them as functions):
//
//   A [16, 16]   a[0] = A(g, 2t..2t+1)     a[1] = A(g+8, 2t..2t+1)    a[2] = A(g, 2t+8..2t+9)    a[3] = A(g+8, 2t+8..2t+9)
//   B [16, 8]    b[0] = B(2t..2t+1, g)     b[1] = B(2t+8..2t+9, g)
//   C [16, 8]    c[0], c[1] = C(g, 2t), C(g, 2t+1)     c[2], c[3] = C(g+8, 2t), C(g+8, 2t+1)      fp32
//   A [16, 8] and B [8, 8] of m16n8k8 are the left half a[0], a[1] and the upper half b[0].
#pragma once

#ifndef __CUDACC__
#include "common/machine/cpu/ptx.hpp"
#else

namespace flash {
inline namespace gpu {

/// An address in shared memory, in the form that PTX takes.
__device__ inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// ---- ldmatrix: 8 x 8 matrices of 16-bit elements from shared memory to registers --------------------------------------------
//
// Each lane passes the address of a row of 8 elements (16 bytes, 16-byte aligned): lanes 0..7 the rows of matrix 0, 8..15 of
// matrix 1, ... (x1 and x2 ignore the other lanes' addresses, which must be valid). r[m] gets M(g, 2t..2t+1) of matrix m; with
// _trans M(2t..2t+1, g).

__device__ inline void ldmatrix_x1(unsigned (&r)[1], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(shared_address(row)) : "memory");
}
__device__ inline void ldmatrix_x2(unsigned (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void ldmatrix_x4(unsigned (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void ldmatrix_x4_trans(unsigned (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// ---- mma: D = A B + C on tensor cores, accumulated in fp32 ------------------------------------------------------------------

/// fp16 inputs, D [16, 8] = A [16, 8] B [8, 8] + C. From sm_75 on.
__device__ inline void mma_m16n8k8_f16(float (&d)[4], const unsigned (&a)[2], const unsigned (&b)[1], const float (&c)[4]) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"
               : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(b[0]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

/// fp16 inputs, D [16, 8] = A [16, 16] B [16, 8] + C. On sm_75 two products of half the depth.
__device__ inline void mma_m16n8k16_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], const float (&c)[4]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
#else
  mma_m16n8k8_f16(d, {a[0], a[1]}, {b[0]}, c);
  mma_m16n8k8_f16(d, {a[2], a[3]}, {b[1]}, d);
#endif
}

/// bf16 inputs, D [16, 8] = A [16, 16] B [16, 8] + C. From sm_80 on; traps on an older GPU.
__device__ inline void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], const float (&c)[4]) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
#else
  __trap();
#endif
}

// ---- two fp32 values, rounded to 16 bits, as the halves of a register -------------------------------------------------------

/// fp16; `low` in the lower half.
__device__ inline unsigned pack_f16(float low, float high) {
#if __CUDA_ARCH__ >= 800
  unsigned both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
#else
  unsigned short lower, upper;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(lower) : "f"(low));
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(upper) : "f"(high));
  return lower | static_cast<unsigned>(upper) << 16;
#endif
}

/// bf16; `low` in the lower half. From sm_80 on; traps on an older GPU.
__device__ inline unsigned pack_bf16(float low, float high) {
#if __CUDA_ARCH__ >= 800
  unsigned both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
#else
  __trap();
  return 0;
#endif
}

// ---- keeping rare work out of the common path -------------------------------------------------------------------------------

/// The same number, but the compiler does not know that, so that it cannot compute anything from it ahead of time. Otherwise it
/// computes data that only a rare branch needs, such as the addresses of a bias, before the branch, in every tile.
template <class Integer>
__device__ inline Integer opaque(Integer number) {
  asm volatile("" : "+r"(number));
  return number;
}
__device__ inline float opaque(float number) {
  asm volatile("" : "+f"(number));
  return number;
}

// ---- ex2: 2^x in one instruction, to about two units in the last place; a result below 2^-126 is 0 --------------------------

__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- tanh: in one instruction, from sm_75 on, off by at most 2^-11 of the result --------------------------------------------

__device__ inline float tanh_approx(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- four neighbouring fp32 numbers, aligned to 16 bytes, to global memory --------------------------------------------------

/// Writes them as one access. An assignment to a float4 that was put together from single numbers may become four.
__device__ inline void store4(float* address, const float4& values) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(address)), "f"(values.x),
               "f"(values.y), "f"(values.z), "f"(values.w)
               : "memory");
}

/// Adds to them. Each of the four is added in one step; other threads may add between them. One instruction from sm_90 on, four
/// before.
__device__ inline void atomic_add4(float* address, const float4& values) {
#if __CUDA_ARCH__ >= 900
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(address)), "f"(values.x),
               "f"(values.y), "f"(values.z), "f"(values.w)
               : "memory");
#else
  atomicAdd(address, values.x);
  atomicAdd(address + 1, values.y);
  atomicAdd(address + 2, values.z);
  atomicAdd(address + 3, values.w);
#endif
}

// ---- acquire and release: order between threads of different blocks ---------------------------------------------------------
//
// What a thread did before add_release(), and what other threads did before a barrier that ordered them with it, happens before
// whatever follows a load_acquire() that returns the sum. The number is in global memory.

__device__ inline int load_acquire(const int* address) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(__cvta_generic_to_global(address)) : "memory");
  return value;
}
__device__ inline void add_release(int* address, int value) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(__cvta_generic_to_global(address)), "r"(value) : "memory");
}
/// Waits until another block has made the number `value`. That block must already run, or have ended.
__device__ inline void wait_until_equal(const int* address, int value) {
  while (load_acquire(address) != value) __nanosleep(32);
}

// ---- cp.async: copies from global to shared memory that the thread does not wait for ----------------------------------------
//
// cp_async<16>(to, from); ...; cp_async_commit(); ... cp_async_wait<N>(): all but the N newest groups of this thread have
// landed. Other threads see them after a barrier. Addresses are multiples of the size. On sm_75, which has no cp.async, the
// copy is made at once.

/// Copies `from_bytes` of Bytes (4, 8 or 16) and fills the rest with zeros.
template <int Bytes>
__device__ inline void cp_async_zfill(void* to, const void* from, int from_bytes) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async copies 4, 8 or 16 bytes");
#if __CUDA_ARCH__ >= 800
  if constexpr (Bytes == 16) {  // only 16 bytes can leave L1 out, which this data does not need
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(from_bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(from), "n"(Bytes),
                 "r"(from_bytes)
                 : "memory");
  }
#else
  struct alignas(Bytes) Word {
    unsigned part[Bytes / 4];
  };
  Word word{};
  if (from_bytes == Bytes) {
    word = *static_cast<const Word*>(from);
  } else {
    for (int i = 0; i < from_bytes; ++i) reinterpret_cast<char*>(&word)[i] = static_cast<const char*>(from)[i];
  }
  *static_cast<Word*>(to) = word;
#endif
}

template <int Bytes>
__device__ inline void cp_async(void* to, const void* from) {
  cp_async_zfill<Bytes>(to, from, Bytes);
}

/// Closes a group: the copies since the last one.
__device__ inline void cp_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Waits until at most the Newest youngest groups are still on their way.
template <int Newest>
__device__ inline void cp_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(Newest) : "memory");
#endif
}

/// Waits for all copies, grouped or not.
__device__ inline void cp_async_wait_all() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

}  // namespace gpu
}  // namespace flash

#endif
