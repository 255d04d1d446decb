// How far results in the problem's precision may be from the exact ones. Internal to common/reference.
//
//     tolerance of a row = 2 * max|naive - exact| + tiny      (3 * for gradients)
//
// The first part is measured: a straightforward implementation is off by so much, and another order of the same sums may be
// off by about as much again. One row alone may be exact by luck, so the maximum is over all rows but those whose scores are
// off by more than 16 times as much: a query with a bias of -1e9 keeps no digits of its scores, whoever computes them, and that
// excuses no other row. With few elements the maximum can still be 0 by luck (Nk = 1 has P = 1), hence `tiny`: what a rounding
// or two cost. With u = 2^-24, half the distance from 1 to the next float, and the row's sums of absolute terms from
// exact::Terms:
//
//     L_i      e_i = u (1 + score_i)                     a score is off by about u times its terms; L is a mean of scores
//     O_i      (e_i/4 + u) max|V|                        dP_ij/dS_ij = P_ij (1 - P_ij) <= 1/4
//     dV_j     (e_j + u) max|dO|                         P_ij = exp(S_ij - L_i) is off by P_ij e_i, which e_j bounds
//     dQ_i     e_i max|dQ| + u |scale| dS_i max|K|       P is off by e; dP - D cancels, wholly for Nk = 1
//     dK_j     e_j max|dK| + u |scale| dS_j max|Q|
//
// Except for L, e is at most 8 (exact::hopeless_score): O_i, a mean of rows of V, cannot be off by more than 2 max|V|.
//
// fp16 and bf16 add 2 u16 of the largest result (u16 = 2^-11, 2^-8), one rounding of P or dS and one of the result; L stays fp32.
#pragma once

#include "common/reference/measure.hpp"

#include <vector>

namespace flash {

/// One tolerance for each row of a result, in the order of its rows.
struct Tolerances {
  std::vector<double> O, L, dQ, dK, dV;
};

Tolerances tolerances(const Problem&, const Inputs&, const Measured&);

}  // namespace flash
