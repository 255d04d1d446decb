#include "common/machine/engine/access_log.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>

namespace flash::machine {

std::uint64_t bank_conflicts(const WarpAccess& access, int bytes) {
  const int lanes_per_phase = bytes <= 4 ? 32 : 128 / bytes;
  const int words_per_lane = bytes <= 4 ? 1 : bytes / 4;
  std::uint64_t conflicts = 0;
  for (int first = 0; first < 32; first += lanes_per_phase) {
    std::array<std::uintptr_t, 32> words;  // the phase touches at most 32
    int count = 0;
    for (int lane = first; lane < first + lanes_per_phase; ++lane) {
      if ((access.lanes >> lane & 1u) == 0) continue;
      const std::uintptr_t word = access.address[static_cast<std::size_t>(lane)] / 4;
      for (int i = 0; i < words_per_lane; ++i) words[static_cast<std::size_t>(count++)] = word + static_cast<unsigned>(i);
    }
    std::sort(words.begin(), words.begin() + count);
    count = static_cast<int>(std::unique(words.begin(), words.begin() + count) - words.begin());
    std::array<int, 32> words_in_bank{};
    int fullest = 0;
    for (int i = 0; i < count; ++i) fullest = std::max(fullest, ++words_in_bank[words[static_cast<std::size_t>(i)] % 32]);
    if (fullest > 1) conflicts += static_cast<std::uint64_t>(fullest - 1);
  }
  return conflicts;
}

std::uint64_t sectors(const WarpAccess& access, int bytes) {
  constexpr std::uintptr_t sector_bytes = 32;
  std::array<std::uintptr_t, 64> touched;  // a lane's access is at most 16 bytes: one sector, two if it is not aligned
  int count = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if ((access.lanes >> lane & 1u) == 0) continue;
    const std::uintptr_t address = access.address[static_cast<std::size_t>(lane)];
    const std::uintptr_t last = (address + static_cast<unsigned>(bytes) - 1) / sector_bytes;
    for (std::uintptr_t sector = address / sector_bytes; sector <= last; ++sector) {
      touched[static_cast<std::size_t>(count++)] = sector;
    }
  }
  std::sort(touched.begin(), touched.begin() + count);
  return static_cast<std::uint64_t>(std::unique(touched.begin(), touched.begin() + count) - touched.begin());
}

std::size_t AccessLog::Hash::operator()(const Key& key) const {
  const auto mixed = reinterpret_cast<std::uintptr_t>(key.file) ^ key.object * 31u;
  return mixed * 2 + static_cast<std::size_t>(key.line) * 2654435761u + static_cast<std::size_t>(key.bytes) + key.write;
}

namespace {

/// How many accesses all logs together keep, and may keep.
constinit std::atomic<std::size_t> kept = 0;
bool is_full() {
  static const std::size_t most = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
                                  static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) / 8 / sizeof(WarpAccess);
  return kept >= most;
}

}  // namespace

void AccessLog::forget(std::size_t accesses) {
  used_ -= accesses;
  kept -= accesses;
}

void AccessLog::reset(int warps) {
  for (auto& lines : warps_) lines.clear();
  warps_.resize(static_cast<std::size_t>(warps));
  forget(used_);
}

bool AccessLog::add(int warp, int lane, const Key& key, std::uintptr_t address) {
  Line& line = warps_[static_cast<std::size_t>(warp)][key];
  const auto at = static_cast<std::size_t>(lane);
  const std::uint32_t occurrence = line.occurrences[at]++;
  if (occurrence == line.accesses.size()) {
    if (is_full()) return false;
    ++used_, ++kept;
    try {
      line.accesses.emplace_back();
    } catch (const std::bad_alloc&) {  // the process may have less
      return false;
    }
  }
  WarpAccess& access = line.accesses[occurrence];
  access.lanes |= 1u << lane;
  access.address[at] = address;
  return true;
}

}  // namespace flash::machine
