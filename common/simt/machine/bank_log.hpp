// Bank conflicts of shared memory. It has 32 banks of 4 bytes; in one cycle each bank delivers one word, to any number of lanes.
#pragma once

#include "common/simt/site.hpp"

#include <array>
#include <cstdint>
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

/// Puts the accesses of single lanes together. The n-th access of each lane at the same source line to the same array is one access of
/// the warp; barriers, where all lanes meet, start the count anew.
class BankLog {
 public:
  void reset(int warps);
  void add(int warp, int lane, Site, const void* array, int bytes, bool write, std::uintptr_t address);

  /// Ends all open accesses; returns the conflicts found since the last flush.
  std::uint64_t flush();

 private:
  struct Key {
    const char* file;
    int line, bytes;
    const void* array;
    bool write;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key&) const;
  };
  struct Line {
    std::vector<WarpAccess> accesses;  ///< by occurrence
    std::array<std::uint32_t, 32> occurrences{};
  };
  std::vector<std::unordered_map<Key, Line, Hash>> warps_;
};

}  // namespace flash::machine
