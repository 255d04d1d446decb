// Warp operations: shuffles, votes, matches and reductions. All lanes named in the mask must call the same operation with the same
// mask; the simulator reports a lane that is missing, that has exited, or that waits elsewhere. None of them is a memory fence.
#pragma once

#include "common/machine/cpu/site.hpp"

#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

namespace flash {
inline namespace simt {

enum class WarpOperation : std::uint8_t {
  syncwarp,
  shfl,
  shfl_up,
  shfl_down,
  shfl_xor,
  ballot,
  any,
  all,
  match_any,
  match_all,
  add,
  min_signed,
  max_signed,
  min_unsigned,
  max_unsigned,
  bit_and,
  bit_or,
  bit_xor,
  ldmatrix,
  stmatrix,
  mma,
  elect,
};

/// What a lane brings to a warp operation.
struct WarpRequest {
  WarpOperation operation;
  unsigned mask;
  std::uint64_t value = 0;  ///< a register, or a pointer to several
  int argument = 0;         ///< source lane, distance or mask of a shuffle
  int width = 32;           ///< of a shuffle: it stays within groups of that many lanes
};

/// Waits for the other lanes in the mask; returns this lane's result.
std::uint64_t warp_operation(const WarpRequest&, Site);

/// What fits a register, or two.
template <class T>
concept Register = std::is_trivially_copyable_v<T> &&(sizeof(T) <= 8);

template <Register T>
std::uint64_t to_register(const T& value) {
  std::uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  return bits;
}

template <Register T>
T from_register(std::uint64_t bits) {
  T value;
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}

/// The value of lane `source` of each group of `width` lanes.
template <Register T>
[[nodiscard]] T __shfl_sync(unsigned mask, T value, int source, int width = 32, Site site = Site::here()) {
  return from_register<T>(warp_operation({WarpOperation::shfl, mask, to_register(value), source, width}, site));
}
/// The value of the lane `delta` below; lanes that have none in their group keep their own.
template <Register T>
[[nodiscard]] T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, Site site = Site::here()) {
  const int distance = static_cast<int>(delta);
  return from_register<T>(warp_operation({WarpOperation::shfl_up, mask, to_register(value), distance, width}, site));
}
/// The value of the lane `delta` above; lanes that have none in their group keep their own.
template <Register T>
[[nodiscard]] T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, Site site = Site::here()) {
  const int distance = static_cast<int>(delta);
  return from_register<T>(warp_operation({WarpOperation::shfl_down, mask, to_register(value), distance, width}, site));
}
/// The value of the lane whose number differs in the bits of lane_mask.
template <Register T>
[[nodiscard]] T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, Site site = Site::here()) {
  return from_register<T>(warp_operation({WarpOperation::shfl_xor, mask, to_register(value), lane_mask, width}, site));
}

/// The lanes whose predicate is not zero, as bits.
inline unsigned __ballot_sync(unsigned mask, int predicate, Site site = Site::here()) {
  return static_cast<unsigned>(warp_operation({WarpOperation::ballot, mask, predicate != 0}, site));
}
inline int __any_sync(unsigned mask, int predicate, Site site = Site::here()) {
  return static_cast<int>(warp_operation({WarpOperation::any, mask, predicate != 0}, site));
}
inline int __all_sync(unsigned mask, int predicate, Site site = Site::here()) {
  return static_cast<int>(warp_operation({WarpOperation::all, mask, predicate != 0}, site));
}
/// The lanes that have the same value as this one, as bits.
template <Register T>
unsigned __match_any_sync(unsigned mask, T value, Site site = Site::here()) {
  return static_cast<unsigned>(warp_operation({WarpOperation::match_any, mask, to_register(value)}, site));
}
/// The mask if all lanes have the same value (and *all_equal = 1), else 0.
template <Register T>
unsigned __match_all_sync(unsigned mask, T value, int* all_equal, Site site = Site::here()) {
  const auto result = static_cast<unsigned>(warp_operation({WarpOperation::match_all, mask, to_register(value)}, site));
  *all_equal = result != 0;
  return result;
}

/// 32-bit integers.
template <class T>
concept Integer32 = std::same_as<T, int> || std::same_as<T, unsigned>;

template <Integer32 T>
T warp_reduce(WarpOperation operation, unsigned mask, T value, Site site) {
  return static_cast<T>(warp_operation({operation, mask, static_cast<unsigned>(value)}, site));
}
template <Integer32 T>
T __reduce_add_sync(unsigned mask, T value, Site site = Site::here()) {
  return warp_reduce(WarpOperation::add, mask, value, site);
}
template <Integer32 T>
T __reduce_min_sync(unsigned mask, T value, Site site = Site::here()) {
  return warp_reduce(std::is_signed_v<T> ? WarpOperation::min_signed : WarpOperation::min_unsigned, mask, value, site);
}
template <Integer32 T>
T __reduce_max_sync(unsigned mask, T value, Site site = Site::here()) {
  return warp_reduce(std::is_signed_v<T> ? WarpOperation::max_signed : WarpOperation::max_unsigned, mask, value, site);
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value, Site site = Site::here()) {
  return warp_reduce(WarpOperation::bit_and, mask, value, site);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value, Site site = Site::here()) {
  return warp_reduce(WarpOperation::bit_or, mask, value, site);
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value, Site site = Site::here()) {
  return warp_reduce(WarpOperation::bit_xor, mask, value, site);
}

}  // namespace simt
}  // namespace flash
