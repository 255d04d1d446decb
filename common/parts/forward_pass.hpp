// The forward pass that a backward step of 05, 07 or 08 runs first.
#pragma once

#include "common/attention/variant.hpp"

namespace flash {
#ifdef __CUDACC__
inline namespace gpu {
#else
inline namespace simt {
#endif

/// Of the steps after FORWARD in the stage's add_stage() the first that knows these, too.
const Variant& forward_pass(Features = Features::none);

/// The same as a function for Variant::forward.
inline void run_forward_pass(const Attention& a) { forward_pass().forward(a); }

}  // namespace
}  // namespace flash
