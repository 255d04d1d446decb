#include "common/simt/machine/bank_log.hpp"

#include <algorithm>

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

std::size_t BankLog::Hash::operator()(const Key& key) const {
  const auto mixed = reinterpret_cast<std::uintptr_t>(key.file) ^ reinterpret_cast<std::uintptr_t>(key.array) * 31u;
  return mixed * 2 + static_cast<std::size_t>(key.line) * 2654435761u + static_cast<std::size_t>(key.bytes) + key.write;
}

void BankLog::reset(int warps) {
  for (auto& lines : warps_) lines.clear();
  warps_.resize(static_cast<std::size_t>(warps));
}

void BankLog::add(int warp, int lane, Site site, const void* array, int bytes, bool write, std::uintptr_t address) {
  Line& line = warps_[static_cast<std::size_t>(warp)][{site.file, site.line, bytes, array, write}];
  const auto at = static_cast<std::size_t>(lane);
  const std::uint32_t occurrence = line.occurrences[at]++;
  if (occurrence == line.accesses.size()) line.accesses.emplace_back();
  WarpAccess& access = line.accesses[occurrence];
  access.lanes |= 1u << lane;
  access.address[at] = address;
}

std::uint64_t BankLog::flush() {
  std::uint64_t conflicts = 0;
  for (auto& lines : warps_) {
    for (auto& [key, line] : lines) {
      for (const WarpAccess& access : line.accesses) conflicts += bank_conflicts(access, key.bytes);
      line.accesses.clear();
      line.occurrences.fill(0);
    }
  }
  return conflicts;
}

}  // namespace flash::machine
