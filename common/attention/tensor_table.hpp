// The problem's tensors, each described once: extents, strides under its layout, buffers, padded copies, files, inputs, checks, memory and the
// pointers of other languages are made from this table. A new tensor is a row here, a member of Attention, and one of InputsOf or Results.
#pragma once

#include "common/attention/host_tensor.hpp"
#include "common/attention/tensor.hpp"

#include <optional>
#include <span>

namespace flash {

/// The tensors that may be packed with others in one allocation.
enum class Role { q, k, v, o };

/// The place of one tensor in its allocation: offset and strides in elements.
struct Placement {
  std::int64_t offset = 0;
  Extents stride{};
};

/// Extents [B, H or Hkv, Nq or Nk, d] of a tensor.
Extents shape_of(const Problem&, Role);

/// Placement of a tensor under problem.layout:
///   bhnd: (B,H,N,d)    bnhd: (B,N,H,d)    qkv: Q, K, V packed (B,N,3,H,d)    kv: K, V packed (B,N,2,Hkv,d), Q (B,N,H,d)
/// O follows Q's order of axes and is never packed. Gradients lie like the tensors they belong to.
Placement placement_of(const Problem&, Role);

/// Elements of the allocation that holds a tensor of this role, packed neighbours included.
std::int64_t allocation_elements(const Problem&, Role);

/// Extents of the bias tensor; all zeros without one.
Extents bias_shape(const FullProblem&);

/// Strides of a dense row-major tensor; an extent of 1 gets stride 0, so that it broadcasts.
Extents dense_strides(const Extents& shape);

/// What a pass does with a tensor.
enum class Use { none, read, written };

struct ProblemTensor {
  const char* name;  ///< in counts of bytes and messages: "dQ"
  const char* file;  ///< of --load and --save, and in checks: "dq"
  const char* copy;  ///< its workspace where its rows are padded; null: they never are
  TensorRef Attention::*on_device;
  bool backward;                                         ///< only a backward pass has it
  std::optional<Role> role;                              ///< laid out with the problem, in its dtype; else dense, in fp32
  Extents (*dense_shape)(const FullProblem&) = nullptr;  ///< of those; all zeros: the problem has no such tensor
  HostTensor<float> Inputs::*input = nullptr;            ///< given by the caller; null: a result
  int stream = 0;                                        ///< of an input's random numbers
  HostTensor<float> Results<float>::*result = nullptr;
  HostTensor<double> Results<double>::*exact = nullptr;

  Extents shape(const FullProblem&) const;
  Dtype dtype(const FullProblem& p) const { return role ? p.dtype : Dtype::fp32; }
  bool exists(const FullProblem&, Pass) const;
  Use use(Pass) const;

  /// As kernels see it, but for its address: a bias has all batches, heads and queries, with strides of 0 where they share it.
  TensorRef seen(const FullProblem&) const;
};

/// In the order of files; inputs are made in this order, too.
std::span<const ProblemTensor> problem_tensors();

/// By its name or its file's; null: that is another tensor, such as a workspace.
const ProblemTensor* find_tensor(std::string_view name);

/// Calls visit(tensor) for those that the pass of the problem has.
template <class Visit>
void each_tensor(const FullProblem& p, Pass pass, Visit&& visit) {
  for (const ProblemTensor& tensor : problem_tensors()) {
    if (tensor.exists(p, pass)) visit(tensor);
  }
}

}  // namespace flash
