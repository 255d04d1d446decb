// What the project uses of C++20's library and libc++ before version 15, as in emscripten 3.1.6, lacks. Every source for WebAssembly
// includes it first; with a newer library it is empty.
#pragma once

#ifdef __cplusplus
#include <version>

#if defined(_LIBCPP_VERSION) && _LIBCPP_VERSION < 15000

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <type_traits>
#include <utility>

namespace std {

#ifndef __cpp_lib_bit_cast
template <class To, class From>
constexpr To bit_cast(const From& from) noexcept {
  return __builtin_bit_cast(To, from);
}
#endif

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

struct flash_identity {
  template <class T>
  constexpr T&& operator()(T&& x) const {
    return static_cast<T&&>(x);
  }
};

template <class Compare, class Projection>
auto flash_order(Compare& compare, Projection& projection) {
  return [&](const auto& a, const auto& b) { return invoke(compare, invoke(projection, a), invoke(projection, b)); };
}

template <class Range, class Predicate>
bool none_of(const Range& range, Predicate predicate) {
  return std::none_of(std::begin(range), std::end(range), std::ref(predicate));
}
template <class Range, class Predicate>
bool all_of(const Range& range, Predicate predicate) {
  return std::all_of(std::begin(range), std::end(range), std::ref(predicate));
}
template <class Range, class Predicate>
bool any_of(const Range& range, Predicate predicate) {
  return std::any_of(std::begin(range), std::end(range), std::ref(predicate));
}
template <class Range, class Predicate>
auto find_if(Range&& range, Predicate predicate) {
  return std::find_if(std::begin(range), std::end(range), std::ref(predicate));
}
template <class Range, class Value, class Projection = flash_identity>
auto find(Range&& range, const Value& value, Projection projection = {}) {
  return std::find_if(std::begin(range), std::end(range), [&](auto&& each) { return invoke(projection, each) == value; });
}
template <class Range, class Out>
auto copy(const Range& range, Out out) {
  return std::copy(std::begin(range), std::end(range), out);
}
template <class Range, class Compare = std::less<>, class Projection = flash_identity>
void sort(Range&& range, Compare compare = {}, Projection projection = {}) {
  std::sort(std::begin(range), std::end(range), flash_order(compare, projection));
}
template <class Range, class Compare = std::less<>, class Projection = flash_identity>
void stable_sort(Range&& range, Compare compare = {}, Projection projection = {}) {
  std::stable_sort(std::begin(range), std::end(range), flash_order(compare, projection));
}
template <class Range, class Value, class Compare = std::less<>, class Projection = flash_identity>
auto upper_bound(Range&& range, const Value& value, Compare compare = {}, Projection projection = {}) {
  return std::upper_bound(std::begin(range), std::end(range), value,
                          [&](const Value& a, const auto& b) { return invoke(compare, a, invoke(projection, b)); });
}

}  // namespace ranges
}  // namespace std

#endif
#endif
