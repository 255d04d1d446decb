// How large a problem may be.
#pragma once

#include <cstdint>

namespace flash {

constexpr std::int64_t largest_size = std::int64_t{1} << 30;  ///< keeps i + Nk of visible() within an int
constexpr std::int64_t largest_window = largest_size - 1;     ///< likewise i + Nk - Nq + 1 + right
constexpr std::int64_t largest_head_dim = 256;                ///< of any stage; see Variant::max_head_dim

}  // namespace flash
