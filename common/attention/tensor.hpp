// Tensors as they cross the border between the harness (host compiler) and a kernel's launch() (either compiler):
// a pointer into device memory, four extents and four 64-bit strides.
#pragma once

#include "common/attention/problem.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace flash {

/// Br rows of Q and Bc rows of K and V, as in the FlashAttention papers.
struct Tiles {
  int Br = 0, Bc = 0;
  friend bool operator==(const Tiles&, const Tiles&) = default;
};

/// A buffer that a kernel needs besides the tensors of the problem, for example S [B, H, Nq, Nk]. Row-major.
struct WorkspaceSpec {
  const char* name;
  std::array<std::int64_t, 4> shape;
  Dtype dtype = Dtype::fp32;
  bool zeroed = false;            ///< zero before the first launch; each launch leaves it zero
  Features only_for{};            ///< not allocated for problems without them
  std::int64_t per_sequence = 0;  ///< how much each sequence of a ragged batch adds to the last extent
};

/// Everything a launch() gets: the problem and where its tensors lie. Kernels allocate nothing.
struct Attention {
  FullProblem problem;
  TensorRef Q, K, V;     ///< inputs
  TensorRef bias;        ///< exists() only with a bias: vector, matrix, or ALiBi slopes [B or 1, H or 1, 1, 1]
  TensorRef O, L;        ///< outputs; L is the log-sum-exp [B, H, Nq, 1]
  TensorRef dO;          ///< input of the backward pass
  TensorRef dQ, dK, dV;  ///< outputs of the backward pass
  TensorRef dBias;       ///< likewise; exists() only with FullProblem::bias_gradient, [B or 1, H or 1, Nq, Nk] in fp32
  std::vector<TensorRef> workspaces;
  /// Of a ragged batch, else absent; ints, not fp32: the queries and keys before each sequence and after the last, [1, 1, sequences + 1, 2];
  /// and for variants with tiles longest_first() of the pass that is launched, [1, 1, tiles, 2].
  TensorRef offsets, order;
  /// Of a cache of keys and values (Variant::reads_cache), else absent; ints that the host does not know: how many keys each sequence has, of
  /// the Nk that it has room for, and, if not all, the first that it sees, [1, 1, B, 1]; and if they lie in pages, each a batch of K and V,
  /// these pages, [1, 1, B, any].
  TensorRef ends, firsts, pages;
  DeviceLimits limits;  ///< of the device that the tensors lie on
  int launches = 1;     ///< launches of a backward kernel with Variant::by_launches, each for every launches-th tile of keys
  Tiles tiles;          ///< for the pass that is launched: one of Variant::tiles(), if the variant has any

  /// The workspace buffer of that name, as declared by the variant. Throws std::logic_error if there is none.
  const TensorRef& workspace(const char* name) const;
};

}  // namespace flash
