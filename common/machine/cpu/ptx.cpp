#include "common/machine/cpu/ptx.hpp"

#include "common/machine/cpu/shared_view.hpp"
#include "common/machine/cpu/thread.hpp"
#include "common/machine/engine/messages.hpp"
#include "common/machine/engine/sanitizer.hpp"
#include "common/machine/engine/tensor_core.hpp"
#include "common/machine/engine/worker.hpp"
#include "common/machine/isa/float16.hpp"

#include <algorithm>

namespace flash {
inline namespace simt {
namespace {

constexpr unsigned full_warp = 0xffffffffu;

}  // namespace

void ldmatrix(LdmatrixLane& lane, Site site) {
  const machine::sanitizer::Unwatched unwatched;
  warp_operation({WarpOperation::ldmatrix, full_warp, reinterpret_cast<std::uintptr_t>(&lane)}, site);
  const int parts = lane.trans ? 2 * lane.count : lane.count;
  for (int i = 0; i < parts; ++i) machine::watch_view(site, lane.source[i], lane.trans ? 2 : 4, false);
}

void mma(MmaLane& lane, Site site) {
  const machine::sanitizer::Unwatched unwatched;
  const machine::Worker& worker = machine::running_worker("mma");
  if (lane.type == MmaType::bf16 && worker.block.options.target_sm < 80)
    fail(RuleId::unsupported, site, "mma with bf16 needs sm_80, the target is sm_75");
  warp_operation({WarpOperation::mma, full_warp, reinterpret_cast<std::uintptr_t>(&lane)}, site);
}

void check_together(const char* name, int count, const float* address, int left, Site site) {
  const machine::sanitizer::Unwatched unwatched;
  if (left < count) {
    fail(RuleId::out_of_bounds, site,
         std::string(name) + " takes " + std::to_string(count) + " numbers, but the row ends after " + std::to_string(left));
  }
  if (reinterpret_cast<std::uintptr_t>(address) % (4u * static_cast<unsigned>(count)) != 0) {
    fail_misaligned((std::string(name) + "'s target").c_str(), address, 4 * count, site);
  }
}

bool issue_async_copy(const AsyncCopy& copy, Site site) {
  const machine::sanitizer::Unwatched unwatched;
  machine::Worker& worker = machine::running_worker("cp.async");
  if (copy.from_bytes < 0 || copy.from_bytes > copy.bytes || copy.from_bytes % 2 != 0) {
    fail(RuleId::bad_argument, site,
         "cp.async of " + std::to_string(copy.bytes) + " bytes cannot read " + std::to_string(copy.from_bytes) +
             ": allowed is an even number from 0 to the size");
  }
  const auto alignment = static_cast<std::size_t>(copy.bytes);
  if (reinterpret_cast<std::uintptr_t>(copy.to) % alignment != 0)
    fail_misaligned("cp.async's target", copy.to, alignment, site);
  if (reinterpret_cast<std::uintptr_t>(copy.from) % alignment != 0)
    fail_misaligned("cp.async's source", copy.from, alignment, site);
  check_dynamic_shared(copy.to, alignment, site);
  machine::require_reach(site, copy.from, static_cast<std::size_t>(copy.from_bytes), machine::AccessKind::read);
  // When it lands, it writes to shared memory like any store of the warp.
  log_shared_access(site, nullptr, copy.to, alignment, true);
  if (worker.block.options.target_sm < 80) {
    machine::announce(copy.from, static_cast<std::size_t>(copy.from_bytes), machine::AccessKind::read);
    return false;
  }
  machine::watch_view(site, copy.from, static_cast<std::size_t>(copy.from_bytes), false);
  machine::watch_view(site, copy.to, alignment, true);
  machine::Thread& self = worker.current();
  for (const machine::PendingCopy& pending : self.copies) {
    const auto distance = static_cast<std::byte*>(copy.to) - static_cast<std::byte*>(pending.copy.to);
    if (-copy.bytes < distance && distance < pending.copy.bytes) {
      fail(RuleId::in_flight, site,
           "cp.async into the target of the one at " + machine::words(pending.site) +
               ", which was not waited for: either may land last");
    }
  }
  self.copies.push_back({copy, site, self.groups});
  return true;
}

void forget_writes(const void* address, std::size_t bytes) {
  const machine::sanitizer::Unwatched unwatched;
  if (machine::instruments.watch != nullptr)
    machine::instruments.watch->forget_writes(reinterpret_cast<std::uintptr_t>(address), bytes);
}

bool take_any_copy(AsyncCopy& copy, bool committed) {
  const machine::sanitizer::Unwatched unwatched;
  auto& copies = machine::running_worker("cp.async.wait_all").current().copies;
  if (copies.empty()) return false;
  copy = copies.front().copy;
  const auto* const target = static_cast<const Word32*>(copy.to);
  if (!std::all_of(target, target + copy.bytes / 4, [](const Word32& word) { return word.bits == 0xFFFFFFFFu; }))
    fail(RuleId::in_flight, copies.front().site, "the target of this cp.async was stored to before it landed");
  if (!committed)  // else it lies before the commit, as does its issue, which has told of it
    machine::watch_view(copies.front().site, copy.to, static_cast<std::size_t>(copy.bytes), true);
  else if (machine::instruments.watch != nullptr)
    machine::instruments.watch->assume_written(reinterpret_cast<std::uintptr_t>(copy.to), static_cast<std::size_t>(copy.bytes));
  machine::announce(copy.from, static_cast<std::size_t>(copy.from_bytes), machine::AccessKind::read, copies.front().site);
  copies.erase(copies.begin());
  return true;
}

bool take_landing_copy(int newest, AsyncCopy& copy, bool committed) {
  const machine::sanitizer::Unwatched unwatched;
  const machine::Thread& self = machine::running_worker("cp.async.wait_group").current();
  if (self.copies.empty() || self.copies.front().group >= self.groups - newest) return false;
  return take_any_copy(copy, committed);
}

void land_for_block(int newest) {
  const machine::sanitizer::Unwatched unwatched;
  AsyncCopy copy;
  while (take_landing_copy(newest, copy, true)) land(copy);
  if (machine::instruments.watch != nullptr) machine::instruments.watch->meet_unordered();
}

void close_copy_group() { ++machine::running_worker("cp.async.commit_group").current().groups; }

void fail_copy_leaves_row(int from_bytes, std::size_t left_bytes, Site site) {
  const machine::sanitizer::Unwatched unwatched;
  fail(RuleId::out_of_bounds, site,
       "cp.async reads " + std::to_string(from_bytes) + " bytes, but the row ends after " + std::to_string(left_bytes));
}

}  // namespace simt
}  // namespace flash
