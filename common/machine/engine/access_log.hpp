// The memory accesses of a warp as a whole, put together from those of its lanes: bank conflicts of shared memory, sectors of HBM.
//
// Shared memory has 32 banks of 4 bytes; in one cycle each bank delivers one word, to any number of lanes. Global memory moves in
// sectors of 32 bytes; a sector that several lanes of one access want moves once.
#pragma once

#include "common/machine/cpu/site.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

namespace flash::machine {

using simt::Site;

/// Byte addresses that the lanes of a warp access together.
struct WarpAccess {
  std::array<std::uintptr_t, 32> address;
  std::uint32_t lanes = 0;  ///< which take part
};

/// Extra cycles of one warp-wide access of `bytes` per lane. Wide accesses go in phases of 128 bytes: half warps for 8 bytes, quarter
/// warps for 16. A phase costs as many cycles as the fullest bank has different words; all but the first are conflicts.
std::uint64_t bank_conflicts(const WarpAccess&, int bytes);

/// Sectors of 32 bytes that one warp-wide access of `bytes` per lane touches.
std::uint64_t sectors(const WarpAccess&, int bytes);

/// Puts the accesses of single lanes together. The n-th access of each lane at the same source line to the same array or tensor is one
/// access of the warp; barriers, where all lanes meet, start the count anew. Lanes that sit out an access in between two
/// barriers and take part in later ones at the same line are put together with the wrong neighbours.
class AccessLog {
 public:
  /// What the lanes of one warp-wide access share.
  struct Key {
    const char* file;
    int line, bytes;
    std::uintptr_t object;  ///< address of the array, or id of the tensor
    bool write;
    bool operator==(const Key&) const = default;
  };

  void reset(int warps);
  /// False if no more can be kept: an eighth of the main memory is full of accesses that wait for the next barrier.
  [[nodiscard]] bool add(int warp, int lane, const Key&, std::uintptr_t address);

  /// Ends all open accesses and calls visit(key, access) for each.
  template <class Visit>
  void flush(Visit&& visit) {
    for (std::size_t warp = 0; warp < warps_.size(); ++warp) flush_warp(warp, visit);
  }
  /// The same of one warp.
  template <class Visit>
  void flush_warp(std::size_t warp, Visit&& visit) {
    std::size_t gone = 0;
    for (auto& [key, line] : warps_[warp]) {
      for (const WarpAccess& access : line.accesses) visit(key, access);
      gone += line.accesses.size();
      line.accesses.clear();
      line.occurrences.fill(0);
    }
    forget(gone);
  }

 private:
  struct Hash {
    std::size_t operator()(const Key&) const;
  };
  struct Line {
    std::deque<WarpAccess> accesses;  ///< by occurrence; it may become long
    std::array<std::uint32_t, 32> occurrences{};
  };
  void forget(std::size_t accesses);

  std::vector<std::unordered_map<Key, Line, Hash>> warps_;
  std::size_t used_ = 0;  ///< accesses that are kept
};

}  // namespace flash::machine
