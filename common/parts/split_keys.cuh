// Attention whose keys are split over blocks: what the decode steps of 06 and 08 share
// (docs/reference/decode.md).
//
// A row's keys are cut into parts a = 0, 1, ... Attention over one part alone gives an output and
// the log-sum-exp of its scores, (O_a, L_a). Of the whole row
//   L = ln sum_a e^(L_a),   O = sum_a e^(L_a - L) O_a                                    (K.3)
// Notice that this is attention over the parts: L_a are their scores, O_a their values, and the
// online softmax merges them, some parts after the others (6.2). A part whose keys the row does not
// see has L_a = -inf and O_a = 0, and changes nothing.
//
// Parts are merged at the end of the first kernel, those of a block's warps, if each has its own
// (write_part), and by the second kernel, those of the blocks, the splits (merge_splits). Then, for
// the host, how many splits a run can choose from.
#pragma once

#include "common/machine/hopper.cuh"
#include "common/machine/warp.cuh"
#include "common/parts/compiled_shapes.hpp"
#include "common/parts/kernel.cuh"

#include <algorithm>
#include <limits>

namespace flash {
namespace {

/// (K.3)  Neighbouring elements of a row of O, merged from any number of parts; the row's m and l
/// with them.
template <int Columns>
struct Merged {
  float m = -INFINITY, l = 0.0f, o[Columns] = {};

  template <int N>
  __device__ void add(const float (&part_L)[N], const float (&part_O)[N][Columns]) {
    float m_new = m;
#pragma unroll
    for (int a = 0; a < N; ++a) m_new = fmaxf(m_new, part_L[a]);
    const float shift = zero_if_empty(m_new);  // no part so far sees a key: 0
    const float alpha = expf(m - shift);
    l *= alpha;
#pragma unroll
    for (int c = 0; c < Columns; ++c) o[c] *= alpha;
#pragma unroll
    for (int a = 0; a < N; ++a) {
      const float weight = expf(part_L[a] - shift);
      l += weight;
#pragma unroll
      for (int c = 0; c < Columns; ++c) o[c] += weight * part_O[a][c];
    }
    m = m_new;
  }
  // No part sees a key: O = 0, L = -inf.
  __device__ float O(int c = 0) const { return l == 0.0f ? 0.0f : o[c] / l; }
  __device__ float L() const { return m + logf(l); }
};

/// The rows of a tile: the queries of all heads that share a key/value head. Row r is query r /
/// group of the group's head r % group. Rows beyond the last one repeat it; nobody writes them.
struct PackedRows {
  int group, rows, first, kv_head, b;

  /// Of tile number `index`, counted over all batches and key/value heads.
  __device__ PackedRows(const Problem& p, int Br, int index)
      : group(p.group_size()), rows(group * p.Nq) {
    const int tiles = (rows + Br - 1) / Br;
    first = index % tiles * Br;
    kv_head = index / tiles % p.Hkv;
    b = index / tiles / p.Hkv;
  }
  __device__ bool exists(int r) const { return first + r < rows; }
  __device__ int query(int r) const { return min(first + r, rows - 1) / group; }
  __device__ int head(int r) const { return kv_head * group + min(first + r, rows - 1) % group; }
};

/// Rows of a tile in place of queries, for mask() and LazySoftmax.
struct PackedProblem {
  const PackedRows& rows;
  const Problem& problem;
  float scale = problem.scale;

  __device__ int visible_keys(int row) const { return problem.visible_keys(rows.query(row)); }
};

/// The keys of a sequence where K and V have a batch for each.
struct OfBatch {
  /// Sets problem.Nk to the keys of a sequence; the first that it sees.
  __device__ int enter(Problem&, int) const { return 0; }

  /// The rows of K or V from `key` on.
  template <class T>
  __device__ Matrix<const T> below(const Tensor<const T>& all, int b, int h, int key, int) const {
    return all.head(b, h).below(key);
  }
};

/// The keys of a sequence in a cache, which alone knows how many there are.
struct Cache {
  // Attention's, [B, 1], [B, 1] and [B, any]; the last two may be absent: nullptr.
  Tensor<const int> ends, firsts, pages;

  __device__ int enter(Problem& problem, int b) const {
    problem.Nk = max(0, min(ends.head_vector(0, 0)(b), problem.Nk));
    return firsts.data != nullptr ? max(0, firsts.head_vector(0, 0)(b)) : 0;
  }

  /// Up to the last of Nk keys or of their page, whose rows are a multiple of SPLIT_UNIT: no tile
  /// crosses it.
  template <class T>
  __device__ Matrix<const T> below(const Tensor<const T>& all, int b, int h, int key,
                                   int Nk) const {
    int row = key;
    if (pages.data != nullptr) {
      b = max(0, min(pages.head(0, 0)(b, key / all.rows), all.batches - 1));
      row = key % all.rows;
    }
    Matrix<const T> rows = all.head(b, h).below(row);
    rows.rows = min(rows.rows, Nk - key);
    return rows;
  }
};

/// Merges the parts of a block's warps, O_smem [Warps Br, Width] and L_smem [Warps, Br], and writes
/// them as the part of a split.
template <int Warps, int Br, int Width>
__device__ void write_part(const SharedMatrix<float>& O_smem, const SharedMatrix<float>& L_smem,
                           const PackedRows& rows, int Nq, int split,
                           const Tensor<float>& part_O_all, const Tensor<float>& part_L_all) {
  const int elements = min(rows.rows - rows.first, Br) * Width;  // of rows that exist
  for (int e = threadIdx.x; e < elements; e += Warps * WARP) {
    const int row = e / Width, col = e % Width;
    float L[Warps], O[Warps][1];
#pragma unroll
    for (int warp = 0; warp < Warps; ++warp) {
      L[warp] = L_smem(warp, row);
      O[warp][0] = O_smem(warp * Br + row, col);
    }
    Merged<1> merged;
    merged.add(L, O);
    if (col >= part_O_all.cols) continue;
    const int i = split * Nq + rows.query(row), h = rows.head(row);
    part_O_all.head(rows.b, h)(i, col) = merged.O();
    if (col == 0) part_L_all.head_vector(rows.b, h)(i) = merged.L();
  }
}

/// Neighbouring columns, as one access.
template <class T>
struct alignas(4 * sizeof(T)) Four {
  T values[4];
};

/// The second kernel, which may begin while the first one ends: merges the splits of rows, a thread
/// for each four columns of one. AtOnce: loads in flight.
/// Grid: the rows of all heads over those of a block. Block: (d / 4, rows).
template <class T, int AtOnce>
__global__ void merge_splits_kernel(Tensor<const float> part_O_all, Tensor<const float> part_L_all,
                                    Tensor<T> O_all, Tensor<float> L_all, int splits) {
  const unsigned row = blockIdx.x * blockDim.y + threadIdx.y;  // counted over all heads
  const int Nq = O_all.rows, i = row % Nq, head = row / Nq, col = 4 * threadIdx.x;
  const int b = head / O_all.heads, h = head % O_all.heads;
  if (b >= O_all.batches) return;
  const Matrix<const float> part_O = part_O_all.head(b, h);
  const Vector<const float> part_L = part_L_all.head_vector(b, h);
  Merged<4> merged;
  // Read after write: the first kernel has stored all parts.
  griddepcontrol_wait();
  for (int first = 0; first < splits; first += AtOnce) {
    float L[AtOnce], O[AtOnce][4] = {};
#pragma unroll
    for (int a = 0; a < AtOnce; ++a) {
      L[a] = -INFINITY;
      if (first + a >= splits) continue;
      L[a] = part_L((first + a) * Nq + i);
      const auto four = part_O.template as<const Four<float>>((first + a) * Nq + i, col);
#pragma unroll
      for (int c = 0; c < 4; ++c) O[a][c] = four.values[c];
    }
    merged.add(L, O);
  }
  O_all.head(b, h).template as<Four<T>>(i, col) = {T(merged.O(0)), T(merged.O(1)), T(merged.O(2)),
                                                   T(merged.O(3))};
  if (col == 0) L_all.head_vector(b, h)(i) = merged.L();
}

// ---- How many splits ---------------------------------------------------------------------------
//
// Variant::tiles lists what a run can choose from: Br packed rows and, as Bc, the keys of a split.
// The default fills the GPU with this batch, so that a sequence's bits depend on what else is in
// the batch. Any other choice is a fixed size: the same bits in every batch.

constexpr int SPLIT_UNIT = 64;  // keys: every split begins with a whole tile, which may be larger

/// At most the largest int: estimates also get problems that no grid holds.
inline int rows_of_group(const Problem& p) {
  const std::int64_t rows = std::int64_t{p.group_size()} * p.Nq;
  return static_cast<int>(std::min<std::int64_t>(rows, std::numeric_limits<int>::max()));
}
inline int splits_of(const Problem& p, int keys) {
  return static_cast<int>(blocks_for(p.Nk, keys));
}
inline int whole_units(int keys, int unit) {
  return static_cast<int>(blocks_for(keys, unit)) * unit;
}

/// At most so many: one sequence can fill any GPU, and the workspace stays small.
inline int most_splits(const Problem& p, int Br) {
  const std::int64_t tiles = std::int64_t{p.Hkv} * blocks_for(rows_of_group(p), Br);
  return static_cast<int>(std::clamp<std::int64_t>(1024 / tiles, 1, blocks_for(p.Nk, SPLIT_UNIT)));
}

/// The keys of a split, and the estimated time. Times count in keys that a block visits one after
/// the other.
struct Split {
  int keys = 0;
  std::int64_t time = std::numeric_limits<std::int64_t>::max();
};

/// The fastest split, as estimated from measurements: Shape::BUSY blocks keep an SM busy, beginning
/// and ending a block takes Shape::EDGES, and 16 splits in the second kernel take 64.
template <class Shape>
Split fastest_split(const Problem& p, int multiprocessors) {
  constexpr int unit = std::max(SPLIT_UNIT, Shape::Bc);
  static_assert(unit % Shape::Bc == 0, "a split is made of whole tiles");
  const std::int64_t tiles = std::int64_t{p.B} * p.Hkv * blocks_for(rows_of_group(p), Shape::Br);
  const int at_once = multiprocessors * Shape::BUSY;
  Split best;
  for (int splits = 1; splits <= most_splits(p, Shape::Br); ++splits) {
    const int keys = whole_units(static_cast<int>(blocks_for(p.Nk, splits)), unit);
    const std::int64_t waves = (tiles * splits_of(p, keys) + at_once - 1) / at_once;
    const std::int64_t time =
        waves * (keys + Shape::EDGES) + 64 * blocks_for(splits_of(p, keys), 16);
    if (time < best.time) best = {keys, time};
  }
  return best;
}

template <class Shape>
std::vector<TileChoice> split_choices(const Problem& p, const DeviceLimits& limits) {
  const auto choice = [](int keys, const char* why) {
    return TileChoice{{Shape::Br, keys}, Shape::THREADS, Shape::SHARED_BYTES, why};
  };
  constexpr int unit = std::max(SPLIT_UNIT, Shape::Bc);
  const int best = fastest_split<Shape>(p, limits.multiprocessors).keys;
  const int all = whole_units(p.Nk, unit);
  std::vector<TileChoice> list{choice(best, "as many splits as fill the GPU")};
  for (int keys = unit; keys < all; keys *= 2) {
    if (keys != best && splits_of(p, keys) <= most_splits(p, Shape::Br))
      list.push_back(choice(keys, "a fixed size: the same bits in every batch"));
  }
  if (all != best) list.push_back(choice(all, "no split"));
  return list;
}

/// The parts: fp32, since rounding them would cost digits. Row split * Nq + i is query i.
inline std::vector<WorkspaceSpec> split_workspace(const Problem& p, int Br) {
  const std::int64_t rows = std::int64_t{most_splits(p, Br)} * p.Nq;
  return {{"part_O", {p.B, p.H, rows, p.d}}, {"part_L", {p.B, p.H, rows, 1}}};
}

/// "" or why the second grid, of one block per row, cannot hold a problem.
inline std::string refuse_splits(const Problem& p) {
  return refuse_row_of_blocks(std::int64_t{p.B} * p.H, p.Nq, 1);
}

/// Is a problem one for which splitting pays: few rows, and keys enough to split?
inline bool is_decode(const FullProblem& p, Pass pass) {
  return pass == Pass::forward && std::int64_t{p.group_size()} * p.Nq <= 16 && p.Nk >= 256;
}

/// Starts the second kernel.
template <class T>
void merge_splits(const Attention& a) {
  const Problem& p = a.problem;
  const unsigned quads = static_cast<unsigned>(p.d / 4), rows_at_once = std::max(1u, 128 / quads);
  const int splits = splits_of(p, a.tiles.Bc);
  launch("merge_splits",
         {.grid = dim3(blocks_for(p.B * p.H * p.Nq, static_cast<int>(rows_at_once))),
          .block = dim3(quads, rows_at_once),
          .early = a.limits.sm >= 90},
         splits <= 4 ? merge_splits_kernel<T, 4> : merge_splits_kernel<T, 16>,
         view<const float>(a.workspace("part_O")), view<const float>(a.workspace("part_L")),
         view<T>(a.O), view<float>(a.L), splits);
}

}  // namespace
}  // namespace flash
