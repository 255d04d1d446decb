// Conversions that keep every value.
#pragma once

namespace flash {

/// True if a From becomes a To without narrowing, which braces refuse: no 64-bit size in an int, no double in a float.
template <class To, class From>
concept Lossless = requires(From from) {
  To{from};
};

}  // namespace flash
