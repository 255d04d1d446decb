// As forward_pass.hpp, for the backward kernels in more/ of 07 and 08: the forward pass that knows
// what they know.
#pragma once

#include "common/attention/variant.hpp"

namespace flash {
#ifdef __CUDACC__
inline namespace gpu {
#else
inline namespace simt {
#endif

/// For a backward step that knows the options of chapter 09: add_stage(FORWARD_WITH_OPTIONS ...).
const Variant& forward_pass_with_options();
inline void run_forward_pass_with_options(const Attention& a) {
  forward_pass_with_options().forward(a);
}

/// The same for hyperbolic scores: add_stage(FORWARD_WITH_DISTANCES ...).
const Variant& forward_pass_with_distances();
inline void run_forward_pass_with_distances(const Attention& a) {
  forward_pass_with_distances().forward(a);
}

/// The same for centroids: add_stage(FORWARD_WITH_CENTROIDS ...).
const Variant& forward_pass_with_centroids();
inline void run_forward_pass_with_centroids(const Attention& a) {
  forward_pass_with_centroids().forward(a);
}

}  // namespace
}  // namespace flash
