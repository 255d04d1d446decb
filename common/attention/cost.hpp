// FLOP and byte formulas that all stages share.
#pragma once

#include "common/attention/problem.hpp"

namespace flash {

/// Pairs (query, key) of one head that the mask leaves visible: Nq*Nk, or the exact sum over rows if causal.
std::int64_t visible_pairs(const Problem&);

/// FLOPs by the usual convention: two products of 2*pairs*d each forward, 2.5 times that backward (five products).
/// 4*B*H*Nq*Nk*d forward when nothing is masked. Counts the true d, never a padded one.
double flops(const Problem&, Pass);

/// Bytes that any implementation must move: each input read once, each output written once.
/// Forward: Q, K, V, bias in; O, LSE out. Backward: Q, K, V, O, dO, LSE, bias in; dQ, dK, dV out.
double compulsory_bytes(const Problem&, Pass);

}  // namespace flash
