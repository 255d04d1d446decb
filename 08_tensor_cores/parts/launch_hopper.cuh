// 08 Tensor cores: host code and scheduling that the steps for Hopper share.
#pragma once

#include "08_tensor_cores/parts/launch.cuh"
#include "common/machine/hopper.cuh"
#include "common/parts/softmax.cuh"

namespace flash::tensor_cores {
namespace {

/// wgmma exists on sm_90a only.
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr bool COMPILED_WITH_WGMMA = false;
#else
constexpr bool COMPILED_WITH_WGMMA = true;
#endif

/// The tensor maps of a forward step. Boxes are as high as a tile, boxes of O as a warp's rows.
struct Maps {
  TensorMap Q, K, V, O;
};
template <class Shape>
Maps maps_of(const Attention& a, int warp_rows = 16) {
  return {tensor_map(a.Q, Shape::Br), tensor_map(a.K, Shape::Bc), tensor_map(a.V, Shape::Bc), tensor_map(a.O, warp_rows)};
}

/// The order of the work. Made on the host: kernel parameters take no registers.
struct Schedule {
  int tiles_of_head, heads_at_once, end;  // end: tiles of queries of all heads
};
template <class Shape>
Schedule schedule_of(const Problem& p) {
  const int tiles = static_cast<int>(blocks_for(p.Nq, Shape::Br)), heads = p.B * p.H;
  const std::int64_t bytes_of_KV = std::int64_t{2} * p.Nk * p.d * 2;  // shared by a group of heads
  return {tiles, heads_in_L2(heads, bytes_of_KV / p.group_size()), tiles * heads};
}

/// The counter from which blocks draw their work.
inline std::vector<WorkspaceSpec> work_counter(const Problem&, Pass) {
  return {{.name = "counter", .shape = {1, 1, 1, 1}, .zeroed = true}};
}

/// A tile of queries of a head, and how many tiles of keys it sees. Within a head, the last tile, which sees the most keys, is
/// numbered first.
template <class Shape>
struct Work {
  int head, b, h, kv_head, query0, visible_tiles;  // head: counted over all batches

  __device__ Work(const Problem& p, const Schedule& schedule, int work_id) {
    const BlockOrder order(schedule.tiles_of_head, p.B * p.H, schedule.heads_at_once, work_id);
    head = order.head;
    b = head / p.H;
    h = head % p.H;
    kv_head = p.kv_head(h);
    query0 = (order.tiles_of_head - 1 - order.tile) * Shape::Br;
    visible_tiles = tiles_visible_to(p, query0, Shape::Br);
  }
  /// Key tiles seen by at least one of the `rows` rows from `first` on; rows beyond the last query see none.
  __device__ static int tiles_visible_to(const Problem& p, int first, int rows) {
    return first < p.Nq ? (p.visible_keys(min(first + rows, p.Nq) - 1) + Shape::Bc - 1) / Shape::Bc : 0;
  }
};

/// ", here it is 8.0, ..."
inline std::string here_it_is(const DeviceLimits& limits) {
  return ", here it is " + std::to_string(limits.sm / 10) + "." + std::to_string(limits.sm % 10) +
         ", of the GPU or of what this program was compiled for";
}

inline std::string refuse_before_hopper(const Problem&, const DeviceLimits& limits) {
  return limits.sm >= 90 ? "" : "it uses the TMA, which needs compute capability 9.0 or newer" + here_it_is(limits);
}

inline std::string refuse_unless_sm90(const Problem&, const DeviceLimits& limits) {
  if (limits.sm != 90) return "it uses wgmma, which only compute capability 9.0 has" + here_it_is(limits);
  return limits.wgmma ? "" : "it uses wgmma, and this program was compiled without: CMAKE_CUDA_ARCHITECTURES has to be 90a";
}

/// A forward step. The TMA takes rows of whole 16-byte chunks: others are padded before.
template <const auto& shapes>
Variant hopper_step(const char* name, const char* idea) {
  Variant step = plain_step<shapes>(name, idea);
  step.refuse_on = refuse_unless_sm90;
  return step;
}

}  // namespace
}  // namespace flash::tensor_cores
