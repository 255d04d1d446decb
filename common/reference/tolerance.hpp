// Tolerances: how far results in the problem's precision may be from the exact ones. Internal to common/reference.
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
//     L_i      e_i + s_i, e_i = u (1 + score_i)                    a score is off by about u times its terms, l by s_i
//     O_i      (e_i + s_i) max|O_i| + (e_i/4 + u) max|V|           O_i has the error of its l; dP_ij/dS_ij = P_ij (1 - P_ij) <= 1/4
//     dV_j     s_j max|dV| + (e_j + u) max|dO|                     P_ij = exp(S_ij - L_i) is off by P_ij e_i, which e_j bounds
//     dQ_i     (e_i + s_i) max|dQ| + u |scale| dP_i max|K| + D_i
//     dK_j     (e_j + s_j) max|dK| + u |scale| dP_j max|Q| + D_j
//     dBias_i  the sum over the heads that share the bias of (e_i + s_i) max|dS_i| + u max(P_ij |dO_i| |v_j|) + max(P_i) times the error of D_i
//
// s_i = u (2 sqrt(Nk) + alike_i / 3) is what the sum of a row's weights may lose, of which alike_i equal their neighbour
// (exact::sum_error); s_j is the largest of them.
// The last two parts of dQ and dK are the first-order error of dS_ij = P_ij (dP_ij - D_i), in which the difference may cancel: wholly for
// Nk = 1, or if all rows of V are alike. dP_ij is off by u |dO_i| |v_j|, which moves scale sum_j dS_ij k_j by up to u |scale| max|K| dP_i.
// D_i is off by (e_i + s_i) |dO_i| |O_i|, since all components of O_i share one sum of weights; times scale sum_j P_ij k_j that is what D_i
// stands for above. With sum_i and q_i likewise for dK.
//
// Except for L, e is at most 8 (exact::hopeless_score): O_i, a mean of rows of V, cannot be off by more than 2 max|V|.
//
// fp16 and bf16 add what rounding to 16 bits costs (u16 = 2^-11, 2^-8). P is rounded before P V, each weight its own way by half a unit u16
// on average, so squares are added; O and the gradients are rounded at the end. The D_i of a backward pass is made of the rounded O_i: off by
// u16 |dO_i o O_i| more, in a whole row alike.
//
//     O_i      u16 (|P_i| max|V| / 2 + max|O|)             |P_i|^2 = sum_j P_ij^2
//     dV_j     u16 (|P_j| max|dO| / 2 + max|dV|)
//     dQ_i     u16 (|scale| |dS_i| max|K| / 2 + max|dQ|), and the larger D_i
//     dK_j     u16 (|scale| |dS_j| max|Q| / 2 + max|dK|), and the larger D_j
//
// and half of the smallest fp16 number. With a softcap c, e_i is 2^-11 min(c, score_i) more (exact::score_error). L stays fp32, but u above
// counts 16 times: tensor cores truncate what they add up, and the exponential of the hardware is good to some 2 u.
#pragma once

#include "common/reference/measure.hpp"

namespace flash {

/// One tolerance for each row of a result, in the order of its rows.
Results<double> tolerances(const FullProblem&, const Inputs&, const Measured&);

}  // namespace flash
