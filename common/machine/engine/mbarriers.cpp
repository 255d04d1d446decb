#include "common/machine/engine/mbarriers.hpp"

#include "common/machine/cpu/thread.hpp"
#include "common/machine/engine/instrumentation.hpp"
#include "common/machine/engine/messages.hpp"

namespace flash::machine {
namespace {

constexpr std::uint64_t intact = 0x7265697272616200;  // what the words of mbarriers hold here

std::uint64_t& word_at(const void* address) { return *static_cast<std::uint64_t*>(const_cast<void*>(address)); }

std::string parity_words(std::int64_t phase) { return std::to_string(phase) + " (parity " + std::to_string(phase & 1) + ")"; }

}  // namespace

std::string Mbarriers::name(const Barrier& barrier) { return "the mbarrier initialised at " + words(barrier.site); }

std::string Mbarriers::lacks(const Barrier& barrier) {
  std::string text = "phase " + std::to_string(barrier.phase) + " of " + name(barrier) + " has " +
                     std::to_string(barrier.arrivals - barrier.pending) + " of " + std::to_string(barrier.arrivals) +
                     " arrivals";
  if (barrier.bytes > 0) text += " and lacks " + std::to_string(barrier.bytes) + " bytes";
  if (barrier.bytes < 0) text += " and " + std::to_string(-barrier.bytes) + " bytes that nobody expected";
  return text;
}

Mbarriers::Barrier& Mbarriers::at(const void* address, const char* what, Site site) {
  const auto found = barriers_.find(address);
  if (found == barriers_.end())
    simt::fail(RuleId::mbarrier, site, std::string(what) + " of an mbarrier that nobody has initialised");
  Barrier& barrier = found->second;
  if (!barrier.known && barrier.initialiser != scheduler_.current().number) {
    simt::fail(RuleId::mbarrier, site,
               std::string(what) + " of " + name(barrier) + ", which this thread cannot know of yet: first " +
                   (barrier.fenced ? "" : "fence_mbarrier_init() and ") + "__syncthreads()");
  }
  if (word_at(address) != intact)
    simt::fail(RuleId::mbarrier, site, std::string(what) + " of " + name(barrier) + ", which was overwritten");
  return barrier;
}

void Mbarriers::init(void* address, int arrivals, Site site) {
  if (reinterpret_cast<std::uintptr_t>(address) % 8 != 0)
    simt::fail(RuleId::misaligned, site, "an mbarrier lies at a multiple of 8 bytes");
  if (arrivals < 1 || arrivals >= 1 << 20) {
    simt::fail(RuleId::bad_argument, site,
               "mbarrier_init for " + std::to_string(arrivals) + " arrivals: allowed are 1 to 2^20 - 1");
  }
  if (const auto found = barriers_.find(address); found != barriers_.end())
    simt::fail(RuleId::mbarrier, site, "mbarrier_init of " + name(found->second) + ": it is in use");
  Barrier barrier;
  barrier.site = site;
  barrier.number = static_cast<int>(barriers_.size());
  barrier.arrivals = barrier.pending = arrivals;
  barrier.initialiser = scheduler_.current().number;
  barrier.thread_waited.assign(scheduler_.threads().size(), nothing_yet);
  barrier.warp_waited.assign(scheduler_.threads().size() / 32 + 1, nothing_yet);
  barrier.seen = barrier.thread_waited;
  barrier.clock_of.fill(std::vector<std::uint32_t>(scheduler_.threads().size()));
  observers_.trace("mbarrier", {{"barrier", barrier.number}, {"arrivals", arrivals}}, site);
  word_at(address) = intact;
  barriers_.emplace(address, std::move(barrier));
}

void Mbarriers::fence_init() {
  for (auto& [address, barrier] : barriers_) {
    if (barrier.initialiser == scheduler_.current().number) barrier.fenced = true;
  }
}

void Mbarriers::synchronised() {
  for (auto& [address, barrier] : barriers_) barrier.known = barrier.fenced;
}

void Mbarriers::arrive(const void* address, const int* expected_bytes, Site site) {
  Barrier& barrier = at(address, expected_bytes == nullptr ? "mbarrier_arrive" : "mbarrier_arrive_expect_tx", site);
  if (expected_bytes != nullptr) {
    if (*expected_bytes < 0 || *expected_bytes >= 1 << 20)
      simt::fail(RuleId::bad_argument, site,
                 "an mbarrier cannot expect " + std::to_string(*expected_bytes) + " bytes: allowed are 0 to 2^20 - 1");
    barrier.bytes += *expected_bytes;
  }
  if (barrier.pending == 0) simt::fail(RuleId::mbarrier, site, "one arrival too many: " + lacks(barrier));
  observers_.release(&barrier.tokens[barrier.phase & 1]);
  --barrier.pending;
  observers_.trace("arrive",
                   {{"barrier", barrier.number},
                    {"phase", barrier.phase},
                    {"missing", barrier.pending},
                    {"bytes", expected_bytes == nullptr ? 0 : *expected_bytes}},
                   site);
  end_phase_if_complete(barrier);
}

void Mbarriers::end_phase_if_complete(Barrier& barrier) {
  if (barrier.pending > 0 || barrier.bytes != 0) return;
  observers_.trace("phase ends", {{"barrier", barrier.number}, {"phase", barrier.phase}}, barrier.site);
  ++barrier.phase;
  barrier.pending = barrier.arrivals;
  scheduler_.wake(barrier.waiting);
  barrier.waiting.clear();
}

std::int64_t Mbarriers::phase_meant(const Barrier& barrier, int parity, Site site) const {
  const Thread& self = scheduler_.current();
  const std::int64_t own = barrier.thread_waited[static_cast<std::size_t>(self.number)];
  const std::int64_t warp = barrier.warp_waited[static_cast<std::size_t>(self.warp())];
  // The first wait takes what there is.
  if (warp == nothing_yet) return ((barrier.phase - 1) & 1) == parity ? barrier.phase - 1 : barrier.phase;
  if (((warp + 1) & 1) == parity) return warp + 1;
  if (own < warp) return warp;
  simt::fail(RuleId::mbarrier, site,
             "mbarrier_wait with the wrong parity: this warp has waited for phase " + parity_words(warp) + " of " +
                 name(barrier) + ", next comes phase " + parity_words(warp + 1));
}

void Mbarriers::wait(const void* address, int parity, Site site) {
  Barrier& barrier = at(address, "mbarrier_wait", site);
  if (parity != 0 && parity != 1)
    simt::fail(RuleId::bad_argument, site, "mbarrier_wait with parity " + std::to_string(parity) + ": allowed are 0 and 1");
  const std::int64_t meant = phase_meant(barrier, parity, site);
  if (barrier.phase - 1 > meant) {
    simt::fail(RuleId::mbarrier, site,
               "mbarrier_wait for phase " + parity_words(meant) + " of " + name(barrier) +
                   ", which has gone on without this warp: it is in phase " + parity_words(barrier.phase));
  }
  observers_.trace("wait", {{"barrier", barrier.number}, {"phase", meant}}, site);
  if (barrier.phase <= meant) {
    barrier.waiting.push_back(&scheduler_.current());
    scheduler_.park("mbarrier_wait", site);
  }
  observers_.trace("waited", {{"barrier", barrier.number}, {"phase", meant}}, site);
  const Thread& self = scheduler_.current();
  std::int64_t& warp = barrier.warp_waited[static_cast<std::size_t>(self.warp())];
  barrier.thread_waited[static_cast<std::size_t>(self.number)] = meant;
  warp = warp < meant ? meant : warp;
  if (meant < 0) return;
  observers_.acquire(&barrier.tokens[meant & 1]);
  if (instruments.watch == nullptr) return;
  barrier.clock_of[static_cast<std::size_t>(meant % 4)][static_cast<std::size_t>(self.number)] =
      instruments.watch->now(self.number);
}

bool Mbarriers::sees(int thread, const void* address, std::int64_t phase) {
  Barrier& barrier = barriers_.at(address);
  std::int64_t& seen = barrier.seen[static_cast<std::size_t>(thread)];
  if (instruments.watch == nullptr || seen >= phase) return true;
  const auto behind = [&](std::size_t other) {
    const std::int64_t ahead = barrier.thread_waited[other] - phase;
    if (other == static_cast<std::size_t>(thread) || ahead < 0 || ahead > 3) return ahead >= 0;
    return instruments.watch->knows(thread, static_cast<int>(other)) >=
           barrier.clock_of[static_cast<std::size_t>(phase % 4)][other];
  };
  for (std::size_t other = 0; seen < phase && other < barrier.seen.size(); ++other) {
    if (behind(other)) seen = phase;
  }
  return seen >= phase;
}

std::int64_t Mbarriers::expect_copy(const void* address, Site site) {
  const Barrier& barrier = at(address, "a load", site);
  if (!barrier.fenced)
    simt::fail(RuleId::missing_fence, site,
               "a load for " + name(barrier) + ", which the TMA cannot know of: first fence_mbarrier_init()");
  return barrier.phase;
}

int Mbarriers::number(const void* address) const { return barriers_.at(address).number; }

void Mbarriers::complete(const void* address, std::int64_t phase, int bytes, Site copy) {
  Barrier& barrier = barriers_.at(address);
  if (barrier.phase != phase) {
    simt::fail(RuleId::mbarrier, copy,
               std::to_string(bytes) + " bytes come for phase " + std::to_string(phase) + " of " + name(barrier) +
                   ", which ended without them: they were not expected");
  }
  barrier.bytes -= bytes;
  end_phase_if_complete(barrier);
}

void Mbarriers::publish(const void* address) {
  Barrier& barrier = barriers_.at(address);
  observers_.release(&barrier.tokens[barrier.phase & 1]);
}

void Mbarriers::end_block() const {
  for (const auto& [address, barrier] : barriers_) {
    if (barrier.pending != barrier.arrivals || barrier.bytes != 0)
      simt::fail(RuleId::mbarrier, barrier.site, "the block ends, and " + lacks(barrier));
  }
}

std::string Mbarriers::missing() const {
  std::string text;
  for (const auto& [address, barrier] : barriers_) {
    if (!barrier.waiting.empty()) text += "; " + lacks(barrier);
  }
  return text;
}

}  // namespace flash::machine
