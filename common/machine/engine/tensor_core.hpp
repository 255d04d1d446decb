// ldmatrix and mma for the 32 lanes of a warp.
#pragma once

#include "common/machine/engine/worker.hpp"

#include <array>

namespace flash::machine {

/// ldmatrix, or stmatrix, as `name` says: tells each lane where its words lie. Returns the bank conflicts: each matrix is one phase of 8 rows of 16 bytes.
std::uint64_t ldmatrix(const char* name, const std::array<LdmatrixLane*, 32>&, const std::array<Site, 32>&);

/// D = A B + C. Returns the number of multiply-adds.
std::uint64_t mma(const std::array<MmaLane*, 32>&, const std::array<Site, 32>&);

}  // namespace flash::machine
