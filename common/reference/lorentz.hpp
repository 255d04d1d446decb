// Distances on the hyperboloid and their gradients, for the exact reference. Internal to common/reference.
//
// A row q is the point (q0, q) with q0 = sqrt(1 + |q|^2). With theta = q0 - k0 and x = (|q - k|^2 - theta^2) / 2, the distance of two points
// is d = arcosh(1 + x) = 2 asinh(sqrt(x / 2)), its derivative by x is 1 / sqrt(x (x + 2)), and
//     dx/dq = q - k - theta q / q0,   dx/dk = k - q + theta k / k0.
// Where q = k the distance has a kink; the subgradient there is 0.
//
// Values::centroid: rows of V are points (v0, v), too. Their weighted sum o has d + 1 components, and a Lorentz norm N = sqrt(o0^2 - |o|^2),
// at least the sum of the weights; y = o / N is a point again. Differentiated, with D = dO . y:
//     do = (dO + D y, -D y0) / N,   which is orthogonal to o.
// 1 / N becomes part of the weights, and ln N part of L.
#pragma once

#include "common/reference/exact.hpp"

namespace flash::exact {

/// d(q_i, k_j): [rows of Q, rows of K].
Matrix distances(const Matrix& Q, const Matrix& K);

/// The gradients of sum_ij W_ij d(q_i, k_j) by Q; swapped, with W transposed, by K.
Matrix distance_gradient(const Matrix& W, const Matrix& Q, const Matrix& K);

/// The rows with their time components as a last column.
Matrix with_times(const Matrix& M);

/// N of weighted sums of with_times(V), whose weights add up to 1, or to 0 in rows that see no key: 1 there.
Vector lorentz_norms(const Matrix& sums);

/// N do of each row, time components last, from the rows of dO and y.
Matrix centroid_gradient(const Matrix& dO, const Matrix& y);

/// dV from its gradients with time components last, and V likewise: v0 depends on v.
Matrix without_times(const Matrix& gradient, const Matrix& V);

}  // namespace flash::exact
