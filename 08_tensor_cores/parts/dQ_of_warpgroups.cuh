// 08 Tensor cores, Hopper backward: a tile of dQ, from the product dS K to its sum in HBM. In steps
// 1 to 3 each warpgroup multiplies a share, in 4 and 5 one warpgroup, the maker, all of it. From
// step 3 on they store it in shared memory, and one thread, the adder, adds it to dQ_accum.
#pragma once

#include "08_tensor_cores/parts/panels_backward.cuh"

namespace flash::tensor_cores {
namespace {

/// A warpgroup's share of dQ [Br, Width]: 64 rows and all columns, or 64 columns if two warpgroups
/// share the rows.
template <class Shape>
struct ShareOfDQ {
  static constexpr int ROW_SHARES = Shape::Br / WARPGROUP_ROWS,
                       COL_SHARES = Shape::CONSUMERS / ROW_SHARES;
  static constexpr int COLS = COL_SHARES == 1 ? Shape::Width : PANEL;
  static_assert(COL_SHARES * ROW_SHARES == Shape::CONSUMERS && COL_SHARES * COLS >= Shape::Width,
                "the warpgroups make all of dQ");

  int index = warpgroup();             // of the share
  Accumulators<1, COLS / 8> acc = {};  // [16, COLS] in each warp

  __device__ int row0() const { return index % ROW_SHARES * WARPGROUP_ROWS; }
  __device__ int col0() const { return index / ROW_SHARES * COLS; }
  /// How many of its fragments of 8 columns exist: none beyond the last column.
  __device__ int fragments() const { return min(COLS, Shape::Width - col0()) / 8; }

  /// (8.16)  Starts dQ = dS K   [Br, Bc] x [Bc, d]. In both tiles rows are keys, and the sum runs
  /// down them: MN-major. Row row0 of dQ is column row0 of dS^T.
  template <class DStTile, class KTile>
  __device__ void issue(DStTile& dSt, KTile& K) {
    // Write after read: the previous dQ, in the same registers, has been added or stored.
    wgmma_fence();
    issue_product<typename KTile::T, Shape::Bc / 16>(acc, dSt.mn_major(row0()), K.mn_major(col0()),
                                                     /*add=*/false);
    wgmma_commit();
  }

  /// Until this and the products issued before it, dV's, are complete; the next, dK's, may not be.
  template <class Gradient>
  __device__ void wait_with(Gradient& dV) {
    wgmma_wait<1>(registers(dV), registers(acc));
  }

  /// Offset of this lane's four elements of fragment n of the warp's 16 rows in dQ_accum (its
  /// order: parts/before_and_after.cuh), for a tile that begins at query0.
  __device__ int offset(int query0, int n) const {
    const unsigned row = query0 + row0() + threadIdx.x % WARPGROUP / WARP * 16;
    const int fragment = row / 16 * (Shape::Width / 8) + col0() / 8 + n;
    return (fragment * WARP + static_cast<int>(threadIdx.x % WARP)) * 4;
  }
  /// Adds to the sum, four elements at a time.
  __device__ void add(const Matrix<float>& sum, int query0) const {
    const auto first = sum.address(0, offset(query0, 0));
#pragma unroll
    for (int n = 0; n < COLS / 8; ++n) {
      if (COL_SHARES * COLS > Shape::Width && n >= fragments()) break;
      const float(&dq)[4] = acc.elements[0][n];
      atomic_add4(first + 4 * n * WARP, make_float4(dq[0], dq[1], dq[2], dq[3]));
    }
  }
  /// From step 3, `bulk`, on: stores to shared memory, in the layout of dQ_accum.
  __device__ void store(float (&tile)[Shape::Br * Shape::Width]) const {
    const SharedMatrix<float> dQ_smem{tile, 1, Shape::Br * Shape::Width, Shape::Br * Shape::Width};
#pragma unroll
    for (int n = 0; n < COLS / 8; ++n) {
      if (COL_SHARES * COLS > Shape::Width && n >= fragments()) break;
      const float(&dq)[4] = acc.elements[0][n];
      dQ_smem.as<float4>(0, offset(0, n)) = make_float4(dq[0], dq[1], dq[2], dq[3]);
    }
  }
};

/// In steps 4 and 5: all of dQ [Br, Width] in one warpgroup, 64 rows at a time.
template <class Shape>
struct WholeDQ {
  static constexpr int PRODUCTS = Shape::Br / WARPGROUP_ROWS, FRAGMENTS = Shape::Width / 8;
  Accumulators<1, FRAGMENTS> acc[PRODUCTS];
  static_assert(PRODUCTS <= 2, "the wait for dQ names the first and the last product");

  /// (8.16)  Starts dQ = dS K, as ShareOfDQ does.
  template <class DStTile, class KTile>
  __device__ void issue(DStTile& dSt, KTile& K) {
    // Write after read: the previous dQ, in the same registers, has been stored.
    wgmma_fence();
#pragma unroll
    for (int product = 0; product < PRODUCTS; ++product) {
      issue_product<typename KTile::T, Shape::Bc / 16>(
          acc[product], dSt.mn_major(product * WARPGROUP_ROWS), K.mn_major(), /*add=*/false);
    }
    wgmma_commit();
  }

  /// As ShareOfDQ does. The first product may also be the last.
  template <class Gradient>
  __device__ void wait_with(Gradient& dV) {
    wgmma_wait<1>(registers(dV), registers(acc[0]), registers(acc[PRODUCTS - 1]));
  }

  /// Stores to shared memory, in the layout of dQ_accum.
  __device__ void store(float (&tile)[Shape::Br * Shape::Width]) const {
    const SharedMatrix<float> dQ_smem{tile, 1, Shape::Br * Shape::Width, Shape::Br * Shape::Width};
#pragma unroll
    for (int product = 0; product < PRODUCTS; ++product) {
      const int row = product * WARPGROUP_ROWS +
                      static_cast<int>(threadIdx.x) % WARPGROUP / WARP * 16;  // the warp's first
#pragma unroll
      for (int n = 0; n < FRAGMENTS; ++n) {
        const float(&dq)[4] = acc[product].elements[0][n];
        const int fragment = row / 16 * FRAGMENTS + n;
        dQ_smem.as<float4>(0, fragment * 4 * WARP + 4 * static_cast<int>(threadIdx.x % WARP)) =
            make_float4(dq[0], dq[1], dq[2], dq[3]);
      }
    }
  }
};

/// The adder, one thread: adds tiles of dQ to dQ_accum, each as soon as the consumers have stored
/// it. It may end while additions are in flight: the TMA has read shared memory, and the kernel as
/// a whole ends only when they are complete, which convert_kernel waits for.
template <class T, class Shape, class Work>
__device__ void add_dQ(Shared<T, Shape>& shared, const Problem& problem,
                       const Tensor<float>& dQ_accum, const Work& work) {
  constexpr int BYTES = 4 * Shape::Br * Shape::Width;
  auto at = work.first(problem);  // a tile of queries: its head h and its first query, query0
  for (int iteration = 0; iteration < work.iterations; ++iteration, at = work.after(problem, at)) {
    const int stage = iteration % Shape::DQ_STAGES, parity = iteration / Shape::DQ_STAGES % 2;
    // Read after write: dQ_i is complete.
    wait_full(shared.full_dQ[stage], parity);
    const auto target = dQ_accum.head(work.b, at.h).address(0, at.query0 * Shape::Width);
    bulk_reduce_add(target, shared.dQ[stage], BYTES);
    bulk_commit();
    // Write after read: the TMA has read dQ_i, whose buffer the consumers fill next.
    bulk_wait_read<0>();
    mbarrier_arrive(shared.empty_dQ[stage]);
  }
}

}  // namespace
}  // namespace flash::tensor_cores
