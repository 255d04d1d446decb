#include "common/machine/engine/register_pool.hpp"

#include "common/machine/cpu/thread.hpp"

#include <algorithm>

namespace flash::machine {

void RegisterPool::start_block(std::size_t threads) {
  constexpr std::size_t most = 255;  // that an instruction can name
  const std::size_t each = std::min(65536 / threads, most) / 8 * 8;
  owners_.assign(threads, {static_cast<int>(each), 0, {}});
  free_ = 0;
}

void RegisterPool::set(int registers, bool more, Site site) {
  Owner& self = owners_[static_cast<std::size_t>(scheduler_.current().number)];
  if (more ? registers < self.registers : registers > self.registers) {
    simt::fail(RuleId::bad_argument, site,
               std::string(more ? "setmaxnreg_inc" : "setmaxnreg_dec") + "<" + std::to_string(registers) +
                   "> by a thread that has " + std::to_string(self.registers) + " registers");
  }
  self.site = site;
  observers_.trace("setmaxnreg", {{"registers", registers}}, site);
  if (!more) {
    free_ += self.registers - registers;
    self.registers = registers;
    serve();
    return;
  }
  self.wanted = registers;
  serve();
  if (self.wanted != 0) scheduler_.park("setmaxnreg_inc", site);
}

/// Whoever waits and can have what it wants gets it.
void RegisterPool::serve() {
  std::vector<Thread*> served;
  for (std::size_t i = 0; i < owners_.size(); ++i) {
    Owner& owner = owners_[i];
    if (owner.wanted == 0 || owner.wanted - owner.registers > free_) continue;
    free_ -= owner.wanted - owner.registers;
    owner.registers = owner.wanted;
    owner.wanted = 0;
    if (Thread* const thread = scheduler_.threads()[i]; thread->state == State::parked) served.push_back(thread);
  }
  scheduler_.wake(served);
}

void RegisterPool::end_block() const {
  for (std::size_t i = 0; i < owners_.size(); ++i) {
    const Owner& first = owners_[i / 128 * 128];
    if (owners_[i].registers == first.registers) continue;
    simt::fail(RuleId::warpgroup, owners_[i].site.line != 0 ? owners_[i].site : first.site,
               "setmaxnreg is for all four warps of a warpgroup: thread " + std::to_string(i) + " has " +
                   std::to_string(owners_[i].registers) + " registers, thread " + std::to_string(i / 128 * 128) + " has " +
                   std::to_string(first.registers));
  }
}

std::string RegisterPool::missing() const {
  int wanted = 0;
  for (const Owner& owner : owners_) {
    if (owner.wanted != 0) wanted += owner.wanted - owner.registers;
  }
  if (wanted == 0) return "";
  return "; setmaxnreg_inc wants " + std::to_string(wanted) + " registers more, of which " + std::to_string(free_) +
         " are free";
}

}  // namespace flash::machine
