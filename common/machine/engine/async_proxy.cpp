#include "common/machine/engine/async_proxy.hpp"

#include "common/machine/cpu/thread.hpp"
#include "common/machine/engine/instrumentation.hpp"
#include "common/machine/engine/mbarriers.hpp"
#include "common/machine/engine/messages.hpp"
#include "common/machine/engine/source_line.hpp"

#include <algorithm>

namespace flash::machine {

void AsyncProxy::start_block(MemoryRange dynamic_shared, std::size_t threads) {
  memory_ = dynamic_shared;
  units_.assign((memory_.end - memory_.begin + unit_bytes - 1) / unit_bytes, {});
  stored_.assign(threads, {});
  fences_.assign(threads, {});
  fence_count_ = 0;
  readings_.clear();
  loads_.clear();
  any_unknown_ = false;
}

void AsyncProxy::assume_stored() {
  constexpr std::byte never_written{0xFF};
  for (std::uint32_t u = 0; u < units_.size(); ++u) {
    const std::byte* const first = address_of(u);
    const std::byte* const end = std::min(first + unit_bytes, reinterpret_cast<const std::byte*>(memory_.end));
    if (!std::all_of(first, end, [=](std::byte b) { return b == never_written; })) units_[u].writer = unknown;
  }
  any_unknown_ = true;
}

std::uint32_t AsyncProxy::unit_of(const void* address) const {
  return static_cast<std::uint32_t>((reinterpret_cast<std::uintptr_t>(address) - memory_.begin) / unit_bytes);
}

AsyncProxy::Units AsyncProxy::units_of(const void* address, std::size_t bytes) const {
  Units units;
  const std::uint32_t first = unit_of(address);
  for (std::uint32_t i = 0; i < (bytes + unit_bytes - 1) / unit_bytes; ++i) units.push_back(first + i);
  return units;
}

std::byte* AsyncProxy::address_of(std::uint32_t unit) const {
  return reinterpret_cast<std::byte*>(memory_.begin + unit * unit_bytes);
}

std::string AsyncProxy::line_of(const Flights& flights, std::uint32_t unit) {
  for (const auto& [number, flight] : flights) {
    if (std::ranges::find(flight.units, unit) != flight.units.end())
      return std::string("the ") + flight.what + " at " + words(flight.site);
  }
  return "";
}

AsyncProxy::Time AsyncProxy::now(int thread) const {
  return {fence_count_, instruments.watch != nullptr ? instruments.watch->now(thread) : 0};
}

/// To the TMA or wgmma, if this thread asks for it: is there a fence between the store and what the thread does now?
bool AsyncProxy::is_visible(const Unit& unit, int thread) const {
  if (unit.writer == 0) return true;
  if (unit.writer == unknown) return false;
  const RaceDetector* const watch = instruments.watch;
  const int writer = unit.writer - 1;
  if (unit.fenced.fences > 0 && (watch == nullptr || watch->knows(thread, writer) >= unit.fenced.clock)) return true;
  for (std::size_t t = 0; t < fences_.size(); ++t) {
    const Fence& fence = fences_[t];
    if (fence.at.fences <= unit.stored.fences) continue;
    if (watch == nullptr || fence.known.empty()) return true;
    const bool after_store = fence.known[static_cast<std::size_t>(writer)] >= unit.stored.clock;
    if (after_store && watch->knows(thread, static_cast<int>(t)) >= fence.at.clock) return true;
  }
  return false;
}

std::string AsyncProxy::not_awaited(const Unit& unit, int thread) const {
  if (unit.mbarrier == nullptr || mbarriers_.sees(thread, unit.mbarrier, unit.phase)) return "";
  return ", which the load at " + words(unit.load) + " has filled, and has not waited for its mbarrier";
}

/// ", which thread 3 stored to ... without ..."
std::string AsyncProxy::unfenced(const Unit& unit) {
  std::string who = "a thread stored to";
  if (unit.writer != unknown) {
    who = "thread " + std::to_string(unit.writer - 1) + " stored to at " +
          words(source_line({.address = reinterpret_cast<std::uintptr_t>(unit.place)}));
  }
  return ", which " + who + (unit.fenced.fences > 0 ? " and fenced too late" : " without fence_proxy_async()");
}

int AsyncProxy::begin_reading(int thread, const char* what, Site site, Units units) {
  for (const std::uint32_t u : units) {
    const Unit& unit = units_[u];
    const bool visible = is_visible(unit, thread);
    const std::string unseen = not_awaited(unit, thread);
    if (visible && unit.loads == 0 && unseen.empty()) continue;
    const std::string where = std::string(what) + " reads byte " + std::to_string(u * unit_bytes) + " of dynamic shared memory";
    if (!visible) simt::fail(RuleId::missing_fence, site, where + unfenced(unit));
    if (unit.loads == 0) simt::fail(RuleId::in_flight, site, where + unseen);
    simt::fail(RuleId::in_flight, site, where + " before " + line_of(loads_, u) + " has landed");
  }
  for (const std::uint32_t u : units) ++units_[u].readings;
  readings_[++next_] = {what, site, std::move(units)};
  return next_;
}

void AsyncProxy::end_reading(int reading) {
  const auto found = readings_.find(reading);
  for (const std::uint32_t u : found->second.units) --units_[u].readings;
  readings_.erase(found);
}

int AsyncProxy::begin_load(int thread, Site site, Units units) {
  for (const std::uint32_t u : units) {
    const Unit& unit = units_[u];
    const bool stored = unit.writer != unknown && !is_visible(unit, thread);
    if (unit.readings == 0 && unit.loads == 0 && !stored) continue;
    const std::string where = "the load overwrites byte " + std::to_string(u * unit_bytes) + " of dynamic shared memory";
    if (unit.readings != 0) simt::fail(RuleId::in_flight, site, where + ", which " + line_of(readings_, u) + " still reads");
    if (unit.loads != 0) simt::fail(RuleId::in_flight, site, where + " before " + line_of(loads_, u) + " has landed");
    simt::fail(RuleId::missing_fence, site, where + unfenced(unit));
  }
  for (const std::uint32_t u : units) ++units_[u].loads;
  loads_[++next_] = {"load", site, std::move(units)};
  return next_;
}

void AsyncProxy::end_load(int load, const void* mbarrier, std::int64_t phase) {
  const auto found = loads_.find(load);
  for (const std::uint32_t u : found->second.units) {
    Unit& unit = units_[u];
    --unit.loads;
    unit.writer = 0;
    unit.mbarrier = mbarrier;
    unit.phase = phase;
    unit.load = found->second.site;
  }
  loads_.erase(found);
}

std::string AsyncProxy::access(int thread, const void* address, std::size_t bytes, bool write, const void* from) {
  const std::uint32_t first = unit_of(address);
  const auto last = std::min(
      static_cast<std::size_t>(first + (reinterpret_cast<std::uintptr_t>(address) % unit_bytes + bytes - 1) / unit_bytes),
      units_.size() - 1);
  for (std::uint32_t u = first; u <= last; ++u) {
    Unit& unit = units_[u];
    if (unit.loads != 0) {
      return std::string(write ? "stores to" : "reads") + " byte " + std::to_string(u * unit_bytes) +
             " of dynamic shared memory before " + line_of(loads_, u) + " has landed";
    }
    if (const std::string why = not_awaited(unit, thread); !why.empty()) {
      return std::string(write ? "stores to" : "reads") + " byte " + std::to_string(u * unit_bytes) +
             " of dynamic shared memory" + why;
    }
    if (!write) continue;
    if (unit.readings != 0) {
      return "stores to byte " + std::to_string(u * unit_bytes) + " of dynamic shared memory, which " + line_of(readings_, u) +
             " still reads";
    }
    if (unit.writer != thread + 1 || unit.fenced.fences > 0) {
      unit.writer = static_cast<std::uint16_t>(thread + 1);
      unit.fenced = {};
      stored_[static_cast<std::size_t>(thread)].push_back(u);
    }
    unit.stored = now(thread);
    unit.place = from;
    unit.mbarrier = nullptr;
  }
  return {};
}

void AsyncProxy::fence(int thread) {
  ++fence_count_;
  Units& stored = stored_[static_cast<std::size_t>(thread)];
  for (const std::uint32_t u : stored) {
    if (units_[u].writer == thread + 1) units_[u].fenced = now(thread);
  }
  stored.clear();
  Fence& fence = fences_[static_cast<std::size_t>(thread)];
  fence.at = now(thread);
  fence.known.clear();
  for (std::size_t u = 0; instruments.watch != nullptr && u < fences_.size(); ++u)
    fence.known.push_back(instruments.watch->knows(thread, static_cast<int>(u)));
  if (!any_unknown_) return;
  for (Unit& unit : units_) {
    if (unit.writer == unknown) unit.writer = 0;
  }
  any_unknown_ = false;
}

}  // namespace flash::machine
