// What the project uses of C++20's library and emscripten 3.1.6, Debian 12's, lacks. Every source for WebAssembly includes it first; with a
// newer library it is empty.
#pragma once

#include <version>

#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 15000

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>

namespace std {

template <class To, class From>
constexpr To bit_cast(const From& from) noexcept {
  return __builtin_bit_cast(To, from);
}

/// The fewest digits that give back the same float.
inline to_chars_result to_chars(char* first, char* last, float value) {
  int length = 0;
  for (int digits = 1; digits <= 9; ++digits) {
    length = std::snprintf(first, static_cast<size_t>(last - first), "%.*g", digits, static_cast<double>(value));
    if (std::strtof(first, nullptr) == value) break;
  }
  return {first + length, errc{}};
}

namespace ranges {

#define FLASH_RANGES(algorithm)                                         \
  template <class Range, class... Rest>                                 \
  auto algorithm(Range&& range, Rest... rest) {                         \
    return std::algorithm(std::begin(range), std::end(range), rest...); \
  }
FLASH_RANGES(all_of)
FLASH_RANGES(any_of)
FLASH_RANGES(copy)
FLASH_RANGES(find)
FLASH_RANGES(find_if)
FLASH_RANGES(none_of)
FLASH_RANGES(sort)
FLASH_RANGES(stable_sort)
#undef FLASH_RANGES

template <class Range, class Value, class Projection>
auto find(Range&& range, const Value& value, Projection projection) {
  return std::find_if(std::begin(range), std::end(range), [&](const auto& each) { return invoke(projection, each) == value; });
}
template <class Range, class Projection>
void sort(Range&& range, std::less<>, Projection projection) {
  std::sort(std::begin(range), std::end(range),
            [&](const auto& a, const auto& b) { return invoke(projection, a) < invoke(projection, b); });
}
template <class Range, class Value, class Projection>
auto upper_bound(Range&& range, const Value& value, std::less<>, Projection projection) {
  return std::upper_bound(std::begin(range), std::end(range), value,
                          [&](const Value& a, const auto& b) { return a < invoke(projection, b); });
}

}  // namespace ranges
}  // namespace std

#endif
