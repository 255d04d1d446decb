// The problem's tensors, each described once: extents, strides under its layout, buffers, padded copies, files, inputs, checks, memory and the
// pointers of other languages are made from this table. A new tensor is a row here, a member of Attention, and one of InputsOf or Results.
#pragma once

#include "common/attention/tensor.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace flash {

/// Of the four axes of a tensor.
using Extents = std::array<std::int64_t, 4>;
inline std::int64_t elements_of(const Extents& e) { return e[0] * e[1] * e[2] * e[3]; }

/// A dense row-major tensor [B, H, N, d] on the host, whatever the layout on the device.
template <class T>
struct HostTensor {
  Extents shape{};
  std::vector<T> values;

  HostTensor() = default;
  explicit HostTensor(const Extents& extents, T fill = T{})
      : shape(extents), values(static_cast<std::size_t>(elements_of(extents)), fill) {}

  bool empty() const { return values.empty(); }

  /// Index of element (b, h, row, col). An extent of 1 is broadcast.
  std::size_t index(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t col) const {
    if (shape[0] == 1) b = 0;
    if (shape[1] == 1) h = 0;
    if (shape[2] == 1) row = 0;
    if (shape[3] == 1) col = 0;
    return static_cast<std::size_t>(((b * shape[1] + h) * shape[2] + row) * shape[3] + col);
  }
  T& operator()(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t col) { return values[index(b, h, row, col)]; }
  const T& operator()(std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t col) const {
    return values[index(b, h, row, col)];
  }
};

/// The inputs of a problem. dO is empty in a forward pass; bias is empty without one and else has the shape bias_shape(problem).
template <class T>
struct InputsOf {
  HostTensor<T> Q, K, V, dO, bias;
};

/// Values are floats that the problem's dtype represents exactly.
using Inputs = InputsOf<float>;

/// What a pass computes: O and L [B, H, Nq, 1] forward; dQ, dK, dV too backward (else empty), and the gradient of the bias, in its
/// shape, if the problem asks for it.
template <class T>
struct Results {
  HostTensor<T> O, L, dQ, dK, dV, dBias = {};
};

/// The same to the last bit, NaN included.
bool identical(const Results<float>&, const Results<float>&);

/// What decides a tensor's extents, type and place. A gradient has the role of the tensor that it belongs to.
enum class Role { q, k, v, o, lse, bias };
constexpr bool of_keys(Role role) { return role == Role::k || role == Role::v; }
/// In fp32 and row-major, whatever the problem's dtype and layout.
constexpr bool is_dense(Role role) { return role == Role::lse || role == Role::bias; }

/// The place of one tensor in its allocation, in elements.
struct Placement {
  Role home;                  ///< the first of the tensors in that allocation, in most layouts the tensor itself
  std::int64_t elements = 0;  ///< of the allocation
  std::int64_t offset = 0;
  Extents stride{};
};

/// Extents [B, H or Hkv, Nq or Nk, d] of a tensor; L has one column, and a bias those of bias_shape().
Extents shape_of(const Problem&, Role);

/// Placement of a tensor under problem.layout:
///   bhnd: (B,H,N,d)    bnhd: (B,N,H,d)    qkv: Q, K, V packed (B,N,3,H,d)    kv: K, V packed (B,N,2,Hkv,d), Q (B,N,H,d)
/// O follows Q's order of axes and is never packed. Dense tensors are row-major; an extent of 1 gets stride 0, so that it broadcasts.
Placement placement_of(const Problem&, Role);

/// Extents of the bias tensor; all zeros without one.
Extents bias_shape(const Problem&);

/// A dense tensor without its address.
TensorRef dense_tensor(const char* name, Dtype, const Extents& shape);

/// What a pass does with a tensor.
enum class Use { none, read, written };

struct ProblemTensor {
  const char* name;  ///< in counts of bytes and messages: "dQ"
  const char* file;  ///< of --load and --save, and in checks: "dq"
  const char* copy;  ///< its workspace where its rows are padded; null: they never are
  TensorRef Attention::*on_device;
  bool backward;  ///< only a backward pass has it
  Role role;
  HostTensor<float> Inputs::*input;  ///< given by the caller; null: a result
  int random_stream;                 ///< an input's own random numbers
  HostTensor<float> Results<float>::*result = nullptr;
  HostTensor<double> Results<double>::*in_double = nullptr;
  bool FullProblem::*only_if = nullptr;  ///< the option that asks for it, if one does

  Extents shape(const FullProblem& p) const { return shape_of(p, role); }
  Dtype dtype(const FullProblem& p) const { return is_dense(role) ? Dtype::fp32 : p.dtype; }
  bool exists(const FullProblem&, Pass) const;
  Use use(Pass) const;

  /// As kernels see it, but for its address: a bias has all batches, heads and queries, with strides of 0 where they share it.
  TensorRef kernel_view(const FullProblem&) const;
};

/// In the order of files; inputs are made in this order, too.
std::span<const ProblemTensor> problem_tensors();

/// Calls visit(tensor) for those that the pass of the problem has.
template <class Visit>
void each_tensor(const FullProblem& p, Pass pass, Visit&& visit) {
  for (const ProblemTensor& tensor : problem_tensors()) {
    if (tensor.exists(p, pass)) visit(tensor);
  }
}

}  // namespace flash
