// 08 Tensor cores, backward, all steps: host code: workspaces, refusals, and their Variant.
#pragma once

#include "08_tensor_cores/parts/launch.cuh"

#include <limits>

namespace flash::tensor_cores {
namespace {

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
