// 08 Tensor cores, Hopper, all steps: tiles for TMA and wgmma, products, rings. A tile in shared
// memory is a sequence of panels: each has all rows and 64 columns, so that a panel's row is 128
// bytes, whose chunks are swizzled by the row (common/machine/isa/wgmma_operand.hpp). The last
// panel is whole even if d ends within it: the TMA fills the rest with zeros.
#pragma once

#include "08_tensor_cores/parts/accumulators.cuh"
#include "common/machine/hopper.cuh"
#include "common/machine/wgmma.cuh"

namespace flash::tensor_cores {
namespace {

constexpr int PANEL = 64;           // columns
constexpr int WARPGROUP = 128;      // threads
constexpr int WARPGROUP_ROWS = 64;  // rows of a warpgroup's product

/// The index of this thread's warpgroup. The shuffle tells the compiler that it is uniform in a
/// warp, so that values computed from it, such as operand descriptors, go to uniform registers.
__device__ inline int warpgroup() {
  return __shfl_sync(ALL_LANES, static_cast<int>(threadIdx.x / WARPGROUP), 0);
}

/// The offset in bytes of a chunk, 8 columns, in the first panel.
__device__ inline int chunk_offset(int row, int chunk) {
  return 2 * PANEL * row + 16 * swizzled_chunk(PANEL, row, chunk);
}

/// A tile as operand of mma.sync, like Operand of parts/addresses.cuh. Trans: ldmatrix transposes
/// it.
template <class T_, int Height, bool Trans, int Depth>
struct PanelOperand {
  using T = T_;
  static constexpr int DEPTH = Depth;  // of a left operand: its inner dimension in blocks of 16
  SharedMatrix<T> panels;
  int offset;  // in bytes, of this lane's chunk in block (0, 0)

  /// Columns within a panel flip bits of the offset, rows and panels add to it, as in
  /// Operand::load().
  __device__ void load(unsigned (&block)[4], int outer, int inner) const {
    const int row = 16 * (Trans ? inner : outer), col = 16 * (Trans ? outer : inner);
    const T* const chunk =
        panels.at_byte((offset ^ col % PANEL * 2) + (col / PANEL * Height + row) * 2 * PANEL);
    if constexpr (Trans) {
      ldmatrix_x4_trans(block, chunk);
    } else {
      ldmatrix_x4(block, chunk);
    }
  }
};

/// Rows of a tile, from row0 on.
template <class T_, int Height, int Width>
struct PanelRows {
  using T = T_;
  static constexpr int PANELS = (Width + PANEL - 1) / PANEL, DEPTH = Width / 16;
  SharedMatrix<T> panels;  // [PANELS * Height, 64], one below the other
  int row0;                // a multiple of 8

  __device__ PanelRows(T* tile, int first)
      : panels{tile, PANELS * Height, PANEL, PANEL}, row0(first) {}

  /// Neighbouring elements of a chunk, as one access.
  template <class Wide>
  __device__ decltype(auto) as(int row, int col) const {
    return panels.template as<Wide>(col / PANEL * Height + row0 + row,
                                    swizzled_col(PANEL, row, col % PANEL));
  }

  /// Stores as many rows as the map's boxes have. Called by one thread, in its bulk group.
  __device__ void store(const TensorMap& map, int row, int head, int batch) const {
#pragma unroll
    for (int p = 0; p < PANELS; ++p)
      tma_store(map, panels.data + (p * Height + row0) * PANEL, p * PANEL, row, head, batch);
  }

  // Operands, as those of a tile.
  __device__ KMajor<Height> k_major() const { return flash::k_major<Height>(panels.data, row0); }
  __device__ PanelOperand<T, Height, false, DEPTH> left() const {
    const int lane = threadIdx.x % WARP;
    return {panels, chunk_offset(row0 + lane % 16, lane / 16)};
  }
};

/// A tile [Height, Width] of T in shared memory, at a multiple of 1024 bytes, which its size is
/// too: tiles come first in shared memory, one after the other.
template <class T_, int Height, int Width>
struct PanelTile {
  using T = T_;
  using View = PanelRows<T, Height, Width>;
  static constexpr int DEPTH = Width / 16, ELEMENTS = View::PANELS * Height * PANEL;
  static constexpr int BYTES = 2 * ELEMENTS;  // which the mbarrier of a load has to expect
  unsigned short bits[ELEMENTS];              // of T, which may have constructors
  static_assert(BYTES % 1024 == 0, "the next tile begins where a swizzle begins");

  __device__ T* elements() { return reinterpret_cast<T*>(bits); }
  __device__ View below(int row) { return {elements(), row}; }

  /// Called by one thread: one box per panel. EvictLast: other blocks load it, too.
  template <bool EvictLast = false>
  __device__ void load(const TensorMap& map, Mbarrier& full, int row, int head, int batch) {
#pragma unroll
    for (int p = 0; p < View::PANELS; ++p) {
      T* const panel = elements() + p * Height * PANEL;
      if constexpr (EvictLast) {
        tma_load_evict_last(panel, map, full, p * PANEL, row, head, batch);
      } else {
        tma_load(panel, map, full, p * PANEL, row, head, batch);
      }
    }
  }

  // Operands of wgmma, left or right. K-major: the sum runs along the rows. MN-major: it runs down
  // all rows, in the columns from col0 on.
  __device__ KMajor<Height> k_major() { return flash::k_major<Height>(elements(), 0); }
  __device__ MnMajor<Height> mn_major(int col0 = 0) {
    return flash::mn_major<Height>(elements(), col0);
  }

  // Operands of mma.sync. Lanes point to the chunks of a 16 x 16 block as in the table of
  // parts/tile.cuh.
  __device__ PanelOperand<T, Height, true, DEPTH> right() {
    const int lane = threadIdx.x % WARP;
    return {below(0).panels, chunk_offset(lane % 16, lane / 16)};
  }
  __device__ PanelOperand<T, Height, false, DEPTH> transposed() {
    const int lane = threadIdx.x % WARP;
    return {below(0).panels, chunk_offset(lane / 16 * 8 + lane % 8, lane / 8 % 2)};
  }
};

/// The shared memory of a block, as its shape lays it out: tiles, then mbarriers.
template <class T, class Shape>
using Shared = typename Shape::template Shared<T>;
template <class T, class Shape>
__device__ Shared<T, Shape>& shared_of_block() {
  return reinterpret_cast<Shared<T, Shape>&>(*dynamic_shared<T>(Shape::SHARED_ELEMENTS));
}

/// A warp's accumulators in the form that wgmma takes: the warpgroup has [64, 8 ColFragments], each
/// warp 16 rows of it.
template <int ColFragments>
__device__ float (&registers(Accumulators<1, ColFragments>& C))[4 * ColFragments] {
  return reinterpret_cast<float(&)[4 * ColFragments]>(C.elements);
}

/// Issues C = A B, or C += A B, over Depth blocks of 16 in the inner dimension; all threads of the
/// warpgroup call it. It runs asynchronously: it needs a wgmma_fence() before it, a wgmma_commit()
/// after it, and a wgmma_wait() for its registers before C is read or A or B is changed. The fence
/// names no registers, because the product names them: assembly keeps its order, and what the
/// compiler computes too late, between the two, ptxas sees and fences itself (message C7519).
template <class T, int Depth, int ColFragments, class Left, class Right>
__device__ void issue_product(Accumulators<1, ColFragments>& C, const Left& A, const Right& B,
                              bool add) {
#pragma unroll
  for (int k = 0; k < Depth; ++k) wgmma<T>(registers(C), A(k), B(k), add || k > 0);
}

/// Does the launch give a block as many registers as setmaxnreg deals out to its warpgroups? It
/// gives a thread 65536 / threads, down to a multiple of 8. With too few, setmaxnreg never ends.
constexpr bool registers_suffice(int threads, int dealt_out) {
  return dealt_out <= threads / WARPGROUP * (65536 / threads / 8 * 8);
}

// ---- Rings -------------------------------------------------------------------------------------
//
// A ring is a few buffers for tiles, its stages, with two mbarriers each. A stage is full when its
// tile has been written, and empty when everyone has read it. Consumers call wait_full() and
// release(), producers wait_empty() and commit() or expect bytes: in CUTLASS these are
// consumer_wait, consumer_release, producer_acquire and producer_commit.

// A warp arrives once: __syncwarp orders the accesses of its lanes before the arrival of lane 0. (A
// commit() needs it, and a release() where nothing before it synchronises the warp.)
// With FLASH_ARRIVE_PER_LANE all lanes arrive, for compute-sanitizer's racecheck, which does not
// follow that order (docs/howto/debugging.md, section 7).
#ifdef FLASH_ARRIVE_PER_LANE
constexpr int ARRIVALS_OF_WARP = WARP;
#else
constexpr int ARRIVALS_OF_WARP = 1;
#endif
/// A phase of this mbarrier ends when so many warps have arrived.
__device__ inline void init_for_warps(Mbarrier& barrier, int warps) {
  mbarrier_init(barrier, warps * ARRIVALS_OF_WARP);
}
/// This warp arrives.
__device__ inline void arrive_warp(Mbarrier& barrier) {
  __syncwarp();
  if (threadIdx.x % WARP < ARRIVALS_OF_WARP) mbarrier_arrive(barrier);
}
/// The warp has read a tile: its buffer is empty for this warp.
__device__ inline void release(Mbarrier& empty) { arrive_warp(empty); }
/// The warp has stored its rows of a tile.
__device__ inline void commit(Mbarrier& full) { arrive_warp(full); }

/// The next stage of a ring, and the phase of its mbarriers: producer and consumers keep one each.
template <int Stages>
struct PipelineState {
  int position = 0;  // 0 .. 2 Stages - 1: stage and phase in one register
  __device__ int stage() const { return position % Stages; }
  __device__ int parity() const { return position / Stages; }
  __device__ void next() { position = position + 1 < 2 * Stages ? position + 1 : 0; }
};

}  // namespace
}  // namespace flash::tensor_cores
