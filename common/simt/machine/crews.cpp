#include "common/simt/machine/crews.hpp"

#include "common/simt/machine/names.hpp"
#include "common/simt/machine/worker.hpp"
#include "common/simt/thread.hpp"

#include <algorithm>

namespace flash::machine {

void NamedBarriers::come(int id, int threads, bool wait, Site site) {
  const auto refuse = [&](const std::string& why) {  // makes words only then: a thread that waits for ever frees none
    simt::fail(site, std::string(wait ? "named_barrier_sync" : "named_barrier_arrive") + "(" + std::to_string(id) + ", " +
                         std::to_string(threads) + ")" + why);
  };
  if (id < 1 || id > 15) refuse(": allowed are 1 to 15; 0 is that of __syncthreads");
  if (threads < 32 || threads % 32 != 0 || threads > static_cast<int>(worker_.block_threads().size()))
    refuse(": the count must be a multiple of 32 that the block has");
  Barrier& barrier = barriers_[static_cast<std::size_t>(id)];
  if (barrier.threads == 0) {
    barrier.threads = threads;
    barrier.site = site;
  }
  if (barrier.threads != threads)
    refuse(", but " + std::to_string(barrier.threads) + " threads are awaited by who came at " + words(barrier.site));
  const int generation = barrier.generation;
  unsigned char* const token = &barrier.tokens[generation & 1];
  worker_.release(token);
  worker_.trace(wait ? "sync" : "sync arrive", {{"named", id}, {"phase", generation}}, site);
  if (++barrier.come == threads) {
    worker_.wake(barrier.waiting);
    barrier.waiting.clear();
    barrier.threads = barrier.come = 0;
    ++barrier.generation;
  } else if (wait) {
    barrier.waiting.push_back(&worker_.current());
    worker_.park(State::at_named_barrier, site);
  }
  if (wait) worker_.acquire(token);
  if (wait) worker_.trace("synced", {{"named", id}, {"phase", generation}}, site);
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
    simt::fail(barriers_[id].site, "the block ends, and named barrier " + std::to_string(id) + " has " +
                                       std::to_string(barriers_[id].come) + " of " + std::to_string(barriers_[id].threads) +
                                       " threads");
  }
}

void Registers::start_block(std::size_t threads) {
  constexpr std::size_t most = 255;  // that an instruction can name
  const std::size_t each = std::min(65536 / threads, most) / 8 * 8;
  owners_.assign(threads, {static_cast<int>(each), 0, {}});
  free_ = 0;
}

void Registers::set(int registers, bool more, Site site) {
  Owner& self = owners_[static_cast<std::size_t>(worker_.current().number)];
  if (more ? registers < self.registers : registers > self.registers) {
    simt::fail(site, std::string(more ? "setmaxnreg_inc" : "setmaxnreg_dec") + "<" + std::to_string(registers) +
                         "> by a thread that has " + std::to_string(self.registers) + " registers");
  }
  self.site = site;
  worker_.trace("setmaxnreg", {{"registers", registers}}, site);
  if (!more) {
    free_ += self.registers - registers;
    self.registers = registers;
    serve();
    return;
  }
  self.wanted = registers;
  serve();
  if (self.wanted != 0) worker_.park(State::at_setmaxnreg, site);
}

/// Whoever waits and can have what it wants gets it.
void Registers::serve() {
  std::vector<Thread*> served;
  for (std::size_t i = 0; i < owners_.size(); ++i) {
    Owner& owner = owners_[i];
    if (owner.wanted == 0 || owner.wanted - owner.registers > free_) continue;
    free_ -= owner.wanted - owner.registers;
    owner.registers = owner.wanted;
    owner.wanted = 0;
    if (Thread* const thread = worker_.block_threads()[i]; thread->state == State::at_setmaxnreg) served.push_back(thread);
  }
  worker_.wake(served);
}

void Registers::end_block() const {
  for (std::size_t i = 0; i < owners_.size(); ++i) {
    const Owner& first = owners_[i / 128 * 128];
    if (owners_[i].registers == first.registers) continue;
    simt::fail(owners_[i].site.line != 0 ? owners_[i].site : first.site,
               "setmaxnreg is for all four warps of a warpgroup: thread " + std::to_string(i) + " has " +
                   std::to_string(owners_[i].registers) + " registers, thread " + std::to_string(i / 128 * 128) + " has " +
                   std::to_string(first.registers));
  }
}

std::string Registers::missing() const {
  int wanted = 0;
  for (const Owner& owner : owners_) {
    if (owner.wanted != 0) wanted += owner.wanted - owner.registers;
  }
  if (wanted == 0) return "";
  return "; setmaxnreg_inc wants " + std::to_string(wanted) + " registers more, of which " + std::to_string(free_) +
         " are free";
}

}  // namespace flash::machine
