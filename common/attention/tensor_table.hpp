// The problem's tensors, each described once: buffers, padded copies, files, inputs, checks, memory and the pointers of other languages are
// made from this table. A new tensor is a row here, a member of Attention, and one of InputsOf or Results.
#pragma once

#include "common/attention/host_tensor.hpp"
#include "common/attention/placement.hpp"

#include <optional>
#include <span>

namespace flash {

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
