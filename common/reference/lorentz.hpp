// Distances on the hyperboloid and their gradients, for the exact reference. Internal to common/reference.
//
// A row q is the point (q0, q) with q0 = sqrt(1 + |q|^2). With delta = q0 - k0 and x = (|q - k|^2 - delta^2) / 2, the distance of two points
// is d = arcosh(1 + x) = 2 asinh(sqrt(x / 2)), its derivative by x is 1 / sqrt(x (x + 2)), and
//     dx/dq = q - k - delta q / q0,   dx/dk = k - q + delta k / k0.
// Where q = k the distance has a kink; the subgradient there is 0.
#pragma once

#include "common/reference/exact.hpp"

namespace flash::exact {

/// d(q_i, k_j): [rows of Q, rows of K].
Matrix distances(const Matrix& Q, const Matrix& K);

/// The gradients of sum_ij W_ij d(q_i, k_j) by Q; swapped, with W transposed, by K.
Matrix distance_gradient(const Matrix& W, const Matrix& Q, const Matrix& K);

}  // namespace flash::exact
