// How far results in the problem's precision may be from the exact ones. Internal to common/reference.
//
//     tolerance = 2 * max|naive - exact| + tiny      (3 * for gradients)
//
// The first part is measured: a straightforward implementation is off by so much, and another order of the same sums may be
// off by about as much again. With few elements it can be 0 by luck (Nk = 1 has P = 1), hence `tiny`: what a rounding or two
// cost. With u = 2^-24, half the distance from 1 to the next float, and the sums of absolute terms of exact::Terms:
//
//     L        e = u (1 + score)                       a score is off by about u times its terms; L is a mean of scores
//     O        (e/4 + u) max|V|                        dP_ij/dS_ij = P_ij (1 - P_ij) <= 1/4
//     dV       (e/4 + u) max|dO|
//     dQ       e max|dQ| + u |scale| dS max|K|         P is off by e; dP - D cancels, wholly for Nk = 1
//     dK       e max|dK| + u |scale| dS max|Q|
//
// fp16 and bf16 add 2 u16 of the largest result (u16 = 2^-11, 2^-8), one rounding of P or dS and one of the result; L stays fp32.
#pragma once

#include "common/reference/measure.hpp"

namespace flash {

struct Tolerances {
  double O = 0, L = 0, dQ = 0, dK = 0, dV = 0;
};

Tolerances tolerances(const Problem&, const Inputs&, const Measured&);

}  // namespace flash
