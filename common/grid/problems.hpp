// The problems that every stage is tested on: small, but each at a place where kernels go wrong.
#pragma once

#include "common/attention/problem.hpp"

#include <cstdint>
#include <vector>

namespace flash::grid {

/// A problem with everything not named at its default; scale = 1/sqrt(d), in the first dtype of the stage.
struct Shape {
  int B = 1, H = 2, Hkv = 2, Nq = 64, Nk = 64, d = 32;
};
FullProblem problem_of(const Shape&);

/// Lengths around tile edges, single rows, Nq < Nk and Nq > Nk; causal and not. In 16 bits, where tiles are larger, more of them.
std::vector<FullProblem> lengths();

/// Head dimensions that are and are not multiples of 4, 8, 16, 32, up to what the stage takes; every second one causal.
std::vector<FullProblem> head_dims();

/// Each form of bias with each extent that may be 1, causal and not, Nq != Nk.
std::vector<FullProblem> biases();

/// MHA, GQA, MQA, several batches, in each layout that can hold them.
std::vector<FullProblem> heads_and_layouts();

/// Causal problems with more queries than keys: the first Nq - Nk queries see nothing.
std::vector<FullProblem> fully_masked_rows();

/// Windows around tile edges, with Nq unlike Nk, with queries that see nothing and keys that nobody sees, and with the other options.
std::vector<FullProblem> windows();

/// Softcaps that bend most scores, and that bend none, with each kind of bias, masks and windows.
std::vector<FullProblem> softcaps();

/// Few and many weights dropped, with masks, windows, softcaps, biases and ragged batches.
std::vector<FullProblem> dropouts();

/// The gradient of a bias of each extent that may be 1, with masks, windows, a softcap, dropout, grouped heads.
std::vector<FullProblem> bias_gradients();

/// Hyperbolic scores, with masks, grouped heads, and each of the other options.
std::vector<FullProblem> hyperbolic();

/// Ragged batches around tile edges: empty sequences, sequences without queries or without keys, more of one than of the other, with the
/// options that go with them.
std::vector<FullProblem> ragged();

/// Ragged batches of which each sequence alone takes the tiles that the batch takes.
std::vector<FullProblem> sequences_of_a_tile();

/// Draws from everything above at once, reproducibly.
std::vector<FullProblem> random_mixture(int count, std::uint64_t seed);

/// Few problems for each compiled tile size: each width of head dimensions, tails in both directions, causal and not.
std::vector<FullProblem> every_tile();

/// Is this a build with a sanitizer, where a kernel's thread is ten to a hundred times slower?
bool sanitized();

/// A problem that any kernel takes for each width of head dimensions, with two rows or more of mma fragments for each warp of a tile.
std::vector<FullProblem> tiny();

/// The problems, or under a sanitizer only the first: what is counted does not depend on it. Let the first be small.
std::vector<FullProblem> counted(std::vector<FullProblem> problems);

}  // namespace flash::grid
