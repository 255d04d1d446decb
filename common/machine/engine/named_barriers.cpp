#include "common/machine/engine/named_barriers.hpp"

#include "common/machine/cpu/thread.hpp"
#include "common/machine/engine/messages.hpp"

namespace flash::machine {

void NamedBarriers::come(int id, int threads, bool wait, Site site) {
  const auto refuse = [&](RuleId rule,
                          const std::string& why) {  // makes words only then: a thread that waits for ever frees none
    simt::fail(rule, site,
               std::string(wait ? "named_barrier_sync" : "named_barrier_arrive") + "(" + std::to_string(id) + ", " +
                   std::to_string(threads) + ")" + why);
  };
  if (id < 1 || id > 15) refuse(RuleId::bad_argument, ": allowed are 1 to 15; 0 is that of __syncthreads");
  if (threads < 32 || threads % 32 != 0 || threads > static_cast<int>(scheduler_.threads().size()))
    refuse(RuleId::bad_argument, ": the count must be a multiple of 32 that the block has");
  Barrier& barrier = barriers_[static_cast<std::size_t>(id)];
  if (barrier.threads == 0) {
    barrier.threads = threads;
    barrier.site = site;
  }
  if (barrier.threads != threads)
    refuse(RuleId::named_barrier,
           ", but " + std::to_string(barrier.threads) + " threads are awaited by who came at " + words(barrier.site));
  const int generation = barrier.generation;
  unsigned char* const token = &barrier.tokens[generation & 1];
  observers_.release(token);
  observers_.trace(wait ? "sync" : "sync arrive", {{"named", id}, {"phase", generation}}, site);
  if (++barrier.come == threads) {
    scheduler_.wake(barrier.waiting);
    barrier.waiting.clear();
    barrier.threads = barrier.come = 0;
    ++barrier.generation;
  } else if (wait) {
    barrier.waiting.push_back(&scheduler_.current());
    scheduler_.park("named_barrier_sync", site);
  }
  if (wait) observers_.acquire(token);
  if (wait) observers_.trace("synced", {{"named", id}, {"phase", generation}}, site);
}

std::string NamedBarriers::missing() const {
  std::string text;
  for (std::size_t id = 0; id < barriers_.size(); ++id) {
    if (barriers_[id].come == 0) continue;
    text += "; named barrier " + std::to_string(id) + " has " + std::to_string(barriers_[id].come) + " of " +
            std::to_string(barriers_[id].threads) + " threads";
  }
  return text;
}

void NamedBarriers::end_block() const {
  for (std::size_t id = 0; id < barriers_.size(); ++id) {
    if (barriers_[id].come == 0) continue;
    simt::fail(RuleId::named_barrier, barriers_[id].site,
               "the block ends, and named barrier " + std::to_string(id) + " has " + std::to_string(barriers_[id].come) +
                   " of " + std::to_string(barriers_[id].threads) + " threads");
  }
}

}  // namespace flash::machine
