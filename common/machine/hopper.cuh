// Hopper's instructions: copies by the Tensor Memory Accelerator (TMA), mbarriers that count their bytes, named barriers for
// some of the warps, registers that move between warps; warpgroup products are in wgmma.cuh. common/machine/cpu/hopper.hpp has the
// same names for the CPU, and lists the misuse that it finds. Titles in quotation marks are sections of the PTX ISA.
//
// Everything except setmaxnreg runs on every GPU since sm_90; code for another traps, or does without. Memory means the block's
// shared memory unless it is called global.
#pragma once

#include "common/machine/isa/tensor_map.hpp"

#ifndef __CUDACC__
#include "common/machine/cpu/hopper.hpp"
#else
#include "common/machine/ptx.cuh"

#include <cuda.h>

#if __CUDA_ARCH__ >= 900
#define FLASH_SM90(...) asm volatile(__VA_ARGS__)
#else
#define FLASH_SM90(...) __trap()
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define FLASH_SM90A(...) asm volatile(__VA_ARGS__)
#else
#define FLASH_SM90A(...) __trap()
#endif

namespace flash {
inline namespace gpu {

// ---- mbarriers: "Parallel Synchronization and Communication Instructions: mbarrier" -----------------------------------------
//
// An mbarrier goes through phases, numbered from 0. A phase completes when `arrivals` threads have arrived and all bytes that
// were expected in it have been copied. A thread's accesses before its arrival, and the copies of the phase, happen before
// whatever follows a wait for that phase.

struct alignas(8) Mbarrier {
  unsigned long long word;
};

/// Called by one thread, which then calls fence_mbarrier_init(); after that all threads call __syncthreads().
__device__ inline void mbarrier_init(Mbarrier& barrier, int arrivals) {
  FLASH_SM90("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals) : "memory");
}
/// Makes initialised mbarriers visible to the TMA.
__device__ inline void fence_mbarrier_init() { FLASH_SM90("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ inline void mbarrier_arrive(Mbarrier& barrier) {
  FLASH_SM90("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}
/// Arrives, and makes the phase expect `bytes` more from copies: whole boxes, even at the edge of a tensor.
__device__ inline void mbarrier_arrive_expect_tx(Mbarrier& barrier, int bytes) {
  FLASH_SM90("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(bytes) : "memory");
}
/// Waits until the phase of this parity (phase % 2) is complete. Parities repeat every two phases: skip one and the wait
/// returns at once or never. "Phase -1", of parity 1, is complete from the start: a ring that begins empty needs no arrivals.
__device__ inline void mbarrier_wait(Mbarrier& barrier, int parity) {
  unsigned over = 0;
  while (over == 0) {
    FLASH_SM90(
        "{\n.reg .pred over;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
        "selp.u32 %0, 1, 0, over;\n}"
        : "=r"(over)
        : "r"(shared_address(&barrier)), "r"(parity)
        : "memory");
  }
}

/// For a ring: waits until the producer has filled a stage, or until all consumers have read it. In the first round of a ring
/// wait_empty() returns at once.
__device__ inline void wait_full(Mbarrier& full, int parity) { mbarrier_wait(full, parity); }
__device__ inline void wait_empty(Mbarrier& empty, int parity) { mbarrier_wait(empty, parity ^ 1); }

// ---- TMA, tiles: "Data Movement and Conversion Instructions: Tensor copy" ---------------------------------------------------
//
// One thread copies a box: 64 columns of some rows of one head. In shared memory it is a panel of wgmma_operand.hpp: rows of
// 128 bytes, swizzled, at a multiple of 1024 bytes. Its first column is a multiple of 8. Kernels take maps as `const
// __grid_constant__ TensorMap`.

struct TensorMap {
  CUtensorMap map;
};
/// Host function. Throws std::logic_error if why_no_tensor_map() gives a reason, DeviceError if the driver refuses.
TensorMap tensor_map(const TensorRef&, int box_rows);

/// Global to shared memory: the box whose first element is (batch, head, row, col), with zeros outside the tensor. Its box_rows
/// * 128 bytes count towards the mbarrier's current phase.
__device__ inline void tma_load(void* panel, const TensorMap& map, Mbarrier& barrier, int col, int row, int head, int batch) {
  FLASH_SM90(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::
          "r"(shared_address(panel)),
      "l"(&map.map), "r"(shared_address(&barrier)), "r"(col), "r"(row), "r"(head), "r"(batch)
      : "memory");
}
/// The same, and L2 evicts the box's lines last: for boxes that other blocks load, too.
__device__ inline void tma_load_evict_last(void* panel, const TensorMap& map, Mbarrier& barrier, int col, int row, int head,
                                           int batch) {
  [[maybe_unused]] std::uint64_t policy;
  FLASH_SM90("createpolicy.fractional.L2::evict_last.b64 %0;" : "=l"(policy));
  FLASH_SM90(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address(panel)),
      "l"(&map.map), "r"(shared_address(&barrier)), "r"(col), "r"(row), "r"(head), "r"(batch), "l"(policy)
      : "memory");
}
/// Shared to global memory; elements outside the tensor are skipped. Joins the thread's bulk group, see bulk_commit().
__device__ inline void tma_store(const TensorMap& map, const void* panel, int col, int row, int head, int batch) {
  FLASH_SM90("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map.map),
             "r"(shared_address(panel)), "r"(col), "r"(row), "r"(head), "r"(batch)
             : "memory");
}

/// Global memory to L2: the same box, for whoever loads it next.
__device__ inline void tma_prefetch(const TensorMap& map, int col, int row, int head, int batch) {
  FLASH_SM90("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(&map.map), "r"(col), "r"(row),
             "r"(head), "r"(batch)
             : "memory");
}

// ---- Bulk copies of adjacent bytes: "Bulk copy". One thread; addresses and sizes are multiples of 16 ------------------------

/// Global to shared memory; the bytes count towards the mbarrier.
__device__ inline void bulk_load(void* to, const void* from, int bytes, Mbarrier& barrier) {
  FLASH_SM90(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(&barrier))
      : "memory");
}
/// Shared to global memory, in the thread's bulk group.
__device__ inline void bulk_store(void* to, const void* from, int bytes) {
  FLASH_SM90("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)), "r"(bytes)
             : "memory");
}
/// Adds fp32 elements to global memory, each addition atomic, in the thread's bulk group.
__device__ inline void bulk_reduce_add(float* to, const float* from, int bytes) {
  FLASH_SM90("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)),
             "r"(bytes)
             : "memory");
}
/// Closes a group: this thread's stores and reductions since the previous group.
__device__ inline void bulk_commit() { FLASH_SM90("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until all but the Newest groups of this thread have read their shared memory, which may then be overwritten.
template <int Newest>
__device__ inline void bulk_wait_read() {
  FLASH_SM90("cp.async.bulk.wait_group.read %0;" ::"n"(Newest) : "memory");
}
/// Waits until all but the Newest groups are complete: their data is in global memory.
template <int Newest>
__device__ inline void bulk_wait() {
  FLASH_SM90("cp.async.bulk.wait_group %0;" ::"n"(Newest) : "memory");
}

// ---- Data that threads store and the TMA or wgmma reads: "Async proxy" ------------------------------------------------------

/// Called by each thread that has stored to shared memory, before the barrier after which the TMA or wgmma reads it; or after
/// the barrier, by a thread that is ordered before the thread that requests the read.
__device__ inline void fence_proxy_async() { FLASH_SM90("fence.proxy.async.shared::cta;" ::: "memory"); }
/// The same for global memory: TMA operations that this thread requests later see its stores, and stores that it has
/// synchronised with.
__device__ inline void fence_proxy_async_global() { FLASH_SM90("fence.proxy.async.global;" ::: "memory"); }

// ---- Kernels that overlap: "griddepcontrol", what a launch does with LaunchShape::early. Before sm_90 they do nothing --------

#if __CUDA_ARCH__ >= 900
#define FLASH_GRIDDEPCONTROL(what) asm volatile("griddepcontrol." what ";" ::: "memory")
#else
#define FLASH_GRIDDEPCONTROL(what) static_cast<void>(0)
#endif
/// Waits until the previous kernel has ended, whose writes the whole grid then sees. An early kernel accesses nothing that the
/// previous one writes before it.
__device__ inline void griddepcontrol_wait() { FLASH_GRIDDEPCONTROL("wait"); }
/// Once all blocks have come here or ended, the next kernel may begin, if its launch is early.
__device__ inline void griddepcontrol_launch_dependents() { FLASH_GRIDDEPCONTROL("launch_dependents"); }

// ---- Named barriers: "bar". Ids 1 to 15 (0 is __syncthreads); counts are multiples of 32; whole warps call them -------------

/// Waits until `threads` threads have arrived, by either function.
__device__ inline void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
/// Arrives without waiting.
__device__ inline void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- A warp as a whole ------------------------------------------------------------------------------------------------------

/// The inverse of ldmatrix_x4: lane i passes the address of row i % 8 of matrix i / 8; M(g, 2t..2t+1) of matrix m is written
/// from r[m].
__device__ inline void stmatrix_x4(void* row, const unsigned (&r)[4]) {
  FLASH_SM90("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)), "r"(r[0]),
             "r"(r[1]), "r"(r[2]), "r"(r[3])
             : "memory");
}

/// True for one lane of the warp; all lanes call it.
__device__ inline bool elect_one() {
  unsigned elected = 0;
  FLASH_SM90("{\n.reg .pred elected;\nelect.sync _|elected, 0xffffffff;\nselp.u32 %0, 1, 0, elected;\n}" : "=r"(elected));
  return elected != 0;
}

/// Lowers (dec) or raises (inc) the register limit of each thread of this warpgroup: "setmaxnreg". All four warps call it.
/// Registers that one warpgroup releases become available to another, which waits until there are enough. At launch a thread
/// has 65536 / threads, rounded down to a multiple of 8. The kernel needs __launch_bounds__(threads, 1).
template <int Registers>
__device__ inline void setmaxnreg_dec() {
  static_assert(Registers % 8 == 0 && Registers >= 24 && Registers <= 256, "a multiple of 8 from 24 to 256");
  FLASH_SM90A("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ inline void setmaxnreg_inc() {
  static_assert(Registers % 8 == 0 && Registers >= 24 && Registers <= 256, "a multiple of 8 from 24 to 256");
  FLASH_SM90A("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

}  // namespace gpu
}  // namespace flash

#undef FLASH_SM90
#endif
