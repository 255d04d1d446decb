// Dense tensors in host memory, for inputs, results and references.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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
      : shape(extents), values(static_cast<std::size_t>(extents[0] * extents[1] * extents[2] * extents[3]), fill) {}

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

enum class InputKind;  // problem.hpp

/// The inputs of a problem. dO is empty in a forward pass; bias is empty without one and else has the shape bias_shape(problem).
template <class T>
struct InputsOf {
  HostTensor<T> Q, K, V, dO, bias;
  InputKind kind{};        ///< of make_inputs()
  std::uint64_t seed = 1;  ///< likewise
};

/// Values are floats that the problem's dtype represents exactly.
using Inputs = InputsOf<float>;

/// What a pass computes: O and L [B, H, Nq, 1] forward; dQ, dK, dV too backward (else empty), and the gradient of the bias, in its
/// shape, if the problem asks for it.
template <class T>
struct Results {
  HostTensor<T> O, L, dQ, dK, dV;
  HostTensor<T> dBias = {};
};

/// The same to the last bit, NaN included.
bool identical(const Results<float>&, const Results<float>&);

}  // namespace flash
