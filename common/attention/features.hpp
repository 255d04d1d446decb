// What problems ask of kernels. A kernel that did not know one of these would compute something else without a word, so each variant says
// what it knows (Variant::takes), and is refused the rest.
#pragma once

#include "common/attention/problem.hpp"

namespace flash {

/// A set of what a problem may have beyond one length, a key/value head for each query head, and rows in the order (B,H,N,d).
enum class Features : unsigned {
  none = 0,
  causal = 1u << 0,
  vector_bias = 1u << 1,
  matrix_bias = 1u << 2,
  alibi = 1u << 3,
  shared_heads = 1u << 4,     // Hkv < H
  unequal_lengths = 1u << 5,  // Nq != Nk
  bnhd = 1u << 6,
  packed_qkv = 1u << 7,
  packed_kv = 1u << 8,
  window = 1u << 9,
  softcap = 1u << 10,
  lengths = 1u << 11,
  dropout = 1u << 12,
  bias_gradient = 1u << 13,
  lorentz = 1u << 14,
  centroid = 1u << 15,
  any_scale = 1u << 16,  // not positive, or so large that its product with log2 e overflows
  // A new feature goes here, into the table of options, and into the .takes of the kernels that know it:
  // `.takes = plain_problem | Features::window`.
};

constexpr Features operator|(Features a, Features b) {
  return static_cast<Features>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr Features operator&(Features a, Features b) {
  return static_cast<Features>(static_cast<unsigned>(a) & static_cast<unsigned>(b));
}
constexpr Features operator~(Features a) { return static_cast<Features>(~static_cast<unsigned>(a)); }

constexpr Features every_bias = Features::vector_bias | Features::matrix_bias | Features::alibi;

/// The plain problem, which all kernels know: softmax(scale Q K^T, causal or not) V with a scale above 0. It stays as it is: a kernel says
/// itself what else it knows.
constexpr Features plain_problem = Features::causal | Features::shared_heads | Features::unequal_lengths | Features::bnhd |
                                   Features::packed_qkv | Features::packed_kv;

/// All that a Problem can ask for.
constexpr Features general_problem = plain_problem | every_bias | Features::any_scale;

/// What FullProblem adds to Problem and both passes of stages 06 and 07 know.
constexpr Features all_options = Features::window | Features::softcap | Features::lengths | Features::dropout;

/// What the problem has of them.
Features features_of(const FullProblem&);

}  // namespace flash
