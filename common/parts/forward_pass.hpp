// The forward pass that a stage of a backward pass runs first: the last step of an earlier stage.
// For 05, 07 and 08.
#pragma once

#include "common/attention/variant.hpp"

namespace flash {
#ifdef __CUDACC__
inline namespace gpu {
#else
inline namespace simt {
#endif

/// That step. add_stage(FORWARD ...) generates the definition, one for each backend.
const Variant& forward_pass();

/// The same as a function for Variant::forward.
inline void run_forward_pass(const Attention& a) { forward_pass().forward(a); }

}  // namespace
}  // namespace flash
