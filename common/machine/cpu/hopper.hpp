// TMA, mbarriers, named barriers, setmaxnreg on the CPU: the twins of common/machine/hopper.cuh, which explains them.
//
// What is asynchronous happens as late as the rules allow: a load lands, a store reads its shared memory and a product of wgmma is computed when
// no thread of the block can go on. Until then the target of a load is NaN. Refused, with the line (machine/: mbarriers, copies, units, crews):
//   an mbarrier that is used before its initialisation is known to all, gets too many arrivals or bytes that were not expected, or is waited
//   for with the wrong parity; what is left in one at the end of the block
//   an access to the target of a load before it has landed or, in watched launches, by a thread that is not ordered behind a wait for its mbarrier;
//   a store, or a load, into what a store of the TMA or wgmma still reads; an mbarrier whose word was overwritten
//   the TMA or wgmma reading, or a load overwriting, what a thread has stored, without a fence_proxy_async() in between
//   a bulk store that is never committed, or whose shared memory nobody has waited for
//   named barriers with different counts or what is left in them; setmaxnreg by a part of a warpgroup
// Warps wait for the phases of an mbarrier one after the other: a wait for a phase that is over for long counts as an error, since its parity is that
// of another one.
#pragma once

#include "common/machine/cpu/ptx.hpp"
#include "common/machine/cpu/view.hpp"
#include "common/machine/cpu/warp.hpp"
#include "common/machine/isa/tensor_map.hpp"

#define __grid_constant__

namespace flash {
inline namespace simt {

/// The address as descriptors have it: from the start of dynamic shared memory, where tiles have to lie.
unsigned shared_address(const void*, Site = Site::here());

// ---- mbarriers -----------------------------------------------------------------------------------------------------------------

struct alignas(8) Mbarrier {
  std::uint64_t word;
};

void mbarrier_init(Mbarrier&, int arrivals, Site = Site::here());
void fence_mbarrier_init(Site = Site::here());
void mbarrier_arrive(Mbarrier&, Site = Site::here());
void mbarrier_arrive_expect_tx(Mbarrier&, int bytes, Site = Site::here());
void mbarrier_wait(Mbarrier&, int parity, Site = Site::here());
inline void wait_full(Mbarrier& full, int parity, Site site = Site::here()) { mbarrier_wait(full, parity, site); }
inline void wait_empty(Mbarrier& empty, int parity, Site site = Site::here()) { mbarrier_wait(empty, parity ^ 1, site); }

// ---- TMA -----------------------------------------------------------------------------------------------------------------------

struct TensorMap {
  std::byte* data;
  const char* name;
  int id;                               ///< under which its bytes are counted
  std::array<std::int64_t, 4> extents;  ///< d, N, H, B
  std::array<std::int64_t, 3> strides;  ///< of N, H, B, in bytes
  int box_rows;
};
TensorMap tensor_map(const TensorRef&, int box_rows);

/// The first element of a box.
struct BoxAt {
  int col, row, head, batch;
};
/// Global memory that a bulk copy reads or writes.
struct BulkMemory {
  void* data;
  int id;     ///< 0: not counted
  bool view;  ///< it comes from one
  template <class T>
  BulkMemory(T* pointer) : data(const_cast<std::remove_const_t<T>*>(pointer)), id(0), view(false) {}
  template <class T>
  BulkMemory(GlobalPointer<T> pointer) : data(const_cast<std::remove_const_t<T>*>(pointer.data)), id(pointer.id), view(true) {}
};

void start_load(void* panel, const TensorMap&, Mbarrier&, const BoxAt&, Site);
void start_load(void* to, const BulkMemory& from, int bytes, Mbarrier&, Site);
/// What the running thread has done up to here lies before the end of the mbarrier's phase.
void publish(const Mbarrier&);

inline void tma_load(void* panel, const TensorMap& map, Mbarrier& barrier, int col, int row, int head, int batch,
                     Site site = Site::here()) {
  start_load(panel, map, barrier, {col, row, head, batch}, site);
  publish(barrier);
}
inline void tma_load_evict_last(void* panel, const TensorMap& map, Mbarrier& barrier, int col, int row, int head, int batch,
                                Site site = Site::here()) {
  tma_load(panel, map, barrier, col, row, head, batch, site);
}
inline void bulk_load(void* to, const BulkMemory& from, int bytes, Mbarrier& barrier, Site site = Site::here()) {
  start_load(to, from, bytes, barrier, site);
  publish(barrier);
}

void start_store(const TensorMap&, const void* panel, const BoxAt&, Site);
void start_store(const BulkMemory& to, const void* from, int bytes, bool add, Site);

inline void tma_store(const TensorMap& map, const void* panel, int col, int row, int head, int batch,
                      Site site = Site::here()) {
  start_store(map, panel, {col, row, head, batch}, site);
}
inline void tma_prefetch(const TensorMap&, int, int, int, int) {}
inline void bulk_store(const BulkMemory& to, const void* from, int bytes, Site site = Site::here()) {
  start_store(to, from, bytes, false, site);
}
inline void bulk_reduce_add(const BulkMemory& to, const float* from, int bytes, Site site = Site::here()) {
  start_store(to, from, bytes, true, site);
}
void bulk_commit(Site = Site::here());
void wait_for_stores(int newest, bool complete, Site);
template <int Newest>
void bulk_wait_read(Site site = Site::here()) {
  wait_for_stores(Newest, false, site);
}
template <int Newest>
void bulk_wait(Site site = Site::here()) {
  wait_for_stores(Newest, true, site);
}

void fence_proxy_async(Site = Site::here());
inline void fence_proxy_async_global() {}  // the model's TMA reads global memory as threads left it

// ---- Kernels that overlap --------------------------------------------------------------------------------------------------------
//
// They run one after the other. A watched launch that is early finds what it reads of the previous kernel before a wait: unwritten_read.

void griddepcontrol_wait();
inline void griddepcontrol_launch_dependents() {}

// ---- Warps and groups of them ----------------------------------------------------------------------------------------------------

void named_barrier_sync(int id, int threads, Site = Site::here());
void named_barrier_arrive(int id, int threads, Site = Site::here());

/// Meets the other lanes and finds out where this one's words go: source[m] of the lane.
void stmatrix(LdmatrixLane&, Site);
inline void stmatrix_x4(void* row, const unsigned (&r)[4], Site site = Site::here()) {
  LdmatrixLane lane{4, false, row, {}};
  stmatrix(lane, site);
  for (int m = 0; m < 4; ++m) reinterpret_cast<Word32*>(const_cast<std::byte*>(lane.source[m]))->bits = r[m];
}

inline bool elect_one(Site site = Site::here()) { return warp_operation({WarpOperation::elect, 0xffffffffu}, site) != 0; }

void set_registers(int registers, bool more, Site);
template <int Registers>
void setmaxnreg_dec(Site site = Site::here()) {
  static_assert(Registers % 8 == 0 && Registers >= 24 && Registers <= 256, "a multiple of 8 from 24 to 256");
  set_registers(Registers, false, site);
}
template <int Registers>
void setmaxnreg_inc(Site site = Site::here()) {
  static_assert(Registers % 8 == 0 && Registers >= 24 && Registers <= 256, "a multiple of 8 from 24 to 256");
  set_registers(Registers, true, site);
}

}  // namespace simt
}  // namespace flash
