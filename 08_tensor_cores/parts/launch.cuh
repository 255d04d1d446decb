// 08 Tensor cores, all steps: the order of blocks, the architectures that a kernel is compiled for,
// and host code.
#pragma once

#include "common/machine/float16.cuh"
#include "common/parts/compiled_shapes.hpp"
#include "common/parts/kernel.cuh"

#include <algorithm>
#include <limits>

namespace flash::tensor_cores {
namespace {

/// The tile and the head (counted over all batches) that a block works on. Blocks start in the
/// order of their index: the first tile of each of heads_at_once heads, whose K and V share L2,
/// then the second tile of each, and so on; then the next heads.
struct BlockOrder {
  int tiles_of_head, tile, head;

  __device__ BlockOrder(int tiles, int heads, int heads_at_once,
                        int index = static_cast<int>(blockIdx.x))
      : tiles_of_head(tiles) {
    const int first_head = index / (tiles * heads_at_once) * heads_at_once,
              rest = index % (tiles * heads_at_once);
    const int at_once = min(heads_at_once, heads - first_head);  // at the end perhaps fewer
    tile = rest / at_once;
    head = first_head + rest % at_once;
  }
};

/// The compute capability that the code is compiled for: 80 for 8.0.
#ifdef __CUDA_ARCH__
constexpr int COMPILED_SM = __CUDA_ARCH__ / 10;
#else
constexpr int COMPILED_SM = 90;
#endif

/// wgmma exists on sm_90a only.
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
constexpr bool COMPILED_WITH_WGMMA = false;
#else
constexpr bool COMPILED_WITH_WGMMA = true;
#endif

/// The oldest architecture for which a kernel is compiled. A block has at most 64 KB of shared
/// memory on sm_75, 163 KB on sm_80. On sm_75 a product also takes two instructions, for which a
/// warp with two row fragments and 64 columns of O lacks registers.
constexpr int min_sm(std::size_t shared_bytes, bool fills_registers) {
  if (shared_bytes > 163 << 10) return 90;
  return shared_bytes > 64 << 10 || fills_registers ? 80 : 75;
}

/// How many heads fit in L2 together if the blocks of a head reread so many bytes: in most of the
/// L2 of an A100 (40 MB) or an H100 (50 MB).
inline int heads_in_L2(int heads, std::int64_t bytes_of_head) {
  constexpr std::int64_t L2_BYTES = 32 << 20;
  return static_cast<int>(
      std::clamp<std::int64_t>(L2_BYTES / std::max<std::int64_t>(1, bytes_of_head), 1, heads));
}

/// How many heads, of so many tiles each, to run at once for about one block per SM. With more, the
/// last heads would start their longest blocks when other SMs run out of work.
inline int heads_in_a_wave(const Attention& a, int tiles) {
  return std::max(1, a.limits.multiprocessors / tiles);
}

/// Calls f(T{}) with the element type of the run.
template <class F>
void in_type_of(const Attention& a, F f) {
  run_in_16_bits(a.problem.dtype, f);
}

/// One line of a table of sizes (shapes.hpp of each folder): start() is that of the file which has
/// the Shape. speed: as in CompiledShape.
template <class Shape>
constexpr CompiledShape compiled(const char* why, double speed = 0) {
  CompiledShape shape{.width = Shape::Width,
                      .tiles = {Shape::Br, Shape::Bc},
                      .threads = Shape::THREADS,
                      .shared_bytes = 2 * std::size_t{Shape::SHARED_ELEMENTS},
                      .min_sm = Shape::MIN_SM,
                      .why = why,
                      .start = [](const Attention& a) { start(Shape{}, a); },
                      .speed = speed};
  if constexpr (requires { Shape::BLOCKS; }) shape.per_sm = Shape::BLOCKS;
  return shape;
}

/// "" or why the grid cannot hold a problem: it has one block in x per tile of Q, batch and head,
/// of at least 32 rows.
inline std::string refuse_forward(const Problem& p) {
  return refuse_row_of_blocks(std::int64_t{p.B} * p.H, p.Nq, 32);
}

/// ", here it is 8.0, ..."
inline std::string here_it_is(const DeviceLimits& limits) {
  return ", here it is " + std::to_string(limits.sm / 10) + "." + std::to_string(limits.sm % 10) +
         ", of the GPU or of what this program was compiled for";
}

inline std::string refuse_on(const Problem& p, const DeviceLimits& limits) {
  if (p.dtype != Dtype::bf16 || limits.sm >= 80) return "";
  return "--dtype bf16 needs compute capability 8.0 or newer" + here_it_is(limits) +
         "; fp16 runs on it";
}

/// All steps for Hopper have it.
inline std::string refuse_unless_sm90(const Problem&, const DeviceLimits& limits) {
  if (limits.sm != 90)
    return "it uses wgmma, which only compute capability 9.0 has" + here_it_is(limits);
  return limits.wgmma ? ""
                      : "it uses wgmma, and this program was compiled without: "
                        "CMAKE_CUDA_ARCHITECTURES has to be 90a";
}

/// A step of the ladder, for the plain problem alone.
template <const auto& shapes>
Variant plain_step(const char* name, const char* idea) {
  return {.name = name,
          .idea = idea,
          .forward = start_one_of<shapes>,
          .refuse = refuse_forward,
          .tiles = choices_of<shapes>,
          .dtypes = {Dtype::fp16, Dtype::bf16},
          .max_head_dim = 256,
          .row_multiple = 8,  // 16 bytes
          .takes = plain_problem,
          .refuse_on = refuse_on};
}

// ---- Backward: workspaces, refusals, and the Variant of a step ----------------------------------

/// Every Br divides it: L, D and the sum of dQ have whole tiles of rows.
constexpr int ROW_BLOCK = 128;

/// The number of queries, rounded up to whole tiles of any size.
inline int padded_queries(const Problem& p) {
  return static_cast<int>(blocks_for(p.Nq, ROW_BLOCK)) * ROW_BLOCK;
}

/// Columns of the sum of dQ: d, rounded up to a compiled width.
inline std::int64_t width_of_sum(const Problem& p) {
  return p.d <= 128 ? (p.d + 31) / 32 * 32 : 256;
}

/// "" or why the grids cannot hold a problem: a block has 8 rows or more (prepare_kernel). Or why a
/// head's sum of dQ, of `width` columns in HBM, is too large for offsets that are ints.
inline std::string refuse_backward_with_sum(const Problem& p, std::int64_t width) {
  const std::string forward_refusal = refuse_forward(p);
  if (!forward_refusal.empty()) return forward_refusal;
  const std::int64_t most =
      std::numeric_limits<int>::max() / std::max<std::int64_t>(1, width) / ROW_BLOCK * ROW_BLOCK;
  if (p.Nq > most) {
    return std::to_string(p.Nq) + " queries; allowed with --head-dim " + std::to_string(p.d) +
           ": 1 to " + std::to_string(most) + ", as offsets into a head's sum of dQ have 32 bits";
  }
  return refuse_row_of_blocks(std::int64_t{p.B} * p.H, std::max(padded_queries(p), p.Nk), 8);
}

/// L and D, and a sum of dQ with so many columns.
inline std::vector<WorkspaceSpec> workspace_with_sum(const Problem& p, Pass pass,
                                                     std::int64_t width) {
  if (pass == Pass::forward) return {};
  std::vector<WorkspaceSpec> list{{"LD", {p.B, p.H, 2, padded_queries(p)}}};
  if (width > 0) list.push_back({"dQ_accum", {p.B, p.H, 1, padded_queries(p) * width}});
  return list;
}
inline std::vector<WorkspaceSpec> summing_workspace(const Problem& p, Pass pass) {
  return workspace_with_sum(p, pass, width_of_sum(p));
}

/// A step of the ladder, for the plain problem alone.
template <const auto& shapes, bool SumsInHbm>
Variant plain_backward_step(const char* name, const char* idea) {
  Variant step = plain_step<shapes>(name, idea);
  step.forward = nullptr;  // add_stage() knows it
  step.backward = start_one_of<shapes>;
  step.workspace = [](const Problem& p, Pass pass) {
    return workspace_with_sum(p, pass, SumsInHbm ? width_of_sum(p) : 0);
  };
  step.refuse = [](const Problem& p) {
    return refuse_backward_with_sum(p, SumsInHbm ? width_of_sum(p) : 0);
  };
  step.atomic_dQ = SumsInHbm;
  return step;
}

}  // namespace
}  // namespace flash::tensor_cores
