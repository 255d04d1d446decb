// Arithmetic of launch shapes.
#pragma once

namespace flash {

/// Blocks that cover n elements, `size` to a block.
inline unsigned blocks_for(int n, int size) { return static_cast<unsigned>((static_cast<long long>(n) + size - 1) / size); }

}  // namespace flash
