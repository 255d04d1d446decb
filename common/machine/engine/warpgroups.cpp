#include "common/machine/engine/warpgroups.hpp"

#include "common/machine/cpu/thread.hpp"
#include "common/machine/engine/messages.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace flash::machine {
void Warpgroups::start_block(std::size_t threads) {
  lanes_.assign(threads, {});
  groups_.assign(threads / 128, {});
  in_flight_ = 0;
}

// ---- issuing -----------------------------------------------------------------------------------------------------------------------

void Warpgroups::issue(const WgmmaThread& part, Site site) {
  const int thread = scheduler_.current().number;
  if (static_cast<std::size_t>(thread / 128) >= groups_.size())
    simt::fail(RuleId::warpgroup, site,
               "wgmma needs a warpgroup of 128 threads: the block has only " + std::to_string(lanes_.size()));
  Lane& self = lane(thread);
  join(part, groups_[static_cast<std::size_t>(thread / 128)], self, site);
  take_accumulator(part, self, site);
  Lane::Part mine{part.d, part.a_registers, {}};
  if (part.a_registers != nullptr) {
    take_operand(part, self, site);
    std::copy_n(part.a_registers, 4, mine.a_then.begin());
  }
  self.parts.push_back(mine);
  ++self.issued;
}

/// The first thread that comes makes the product; the others must ask for the same one.
void Warpgroups::join(const WgmmaThread& part, Group& group, Lane& self, Site site) {
  const std::size_t at = self.issued - group.first;
  if (at == group.products.size()) {
    group.products.push_back(make_product(part, site));
    Product& made = group.products.back();
    AsyncProxy::Units units = made.a_units;
    units.insert(units.end(), made.b_units.begin(), made.b_units.end());
    made.reading = proxy_.begin_reading(scheduler_.current().number, "wgmma", site, std::move(units));
    const auto place = [](unsigned descriptor) { return static_cast<std::int64_t>(descriptor & 0x3FFFu) * 16; };
    observers_.trace("wgmma",
                     {{"product", static_cast<std::int64_t>(self.issued)},
                      {"n", part.n},
                      {"a", made.a_shared ? place(part.a.low) : -1},
                      {"b", place(part.b.low)}},
                     site);
  } else {
    const Product& known = group.products[at];
    const std::uint64_t a = std::uint64_t{part.a.high} << 32 | part.a.low, b = std::uint64_t{part.b.high} << 32 | part.b.low;
    const bool same = known.type == part.type && known.n == part.n && known.accumulate == part.accumulate &&
                      known.a_shared == (part.a_registers == nullptr) && known.a_major == part.a_major &&
                      known.b_major == part.b_major && (!known.a_shared || known.a == a) && known.b == b;
    if (!same)
      simt::fail(RuleId::warpgroup, site,
                 "wgmma: the threads of a warpgroup ask for different products: another one came from " + words(known.site));
  }
  if (scheduler_.current().lane() == 0) note_reads(group.products[at], scheduler_.current().warp() % 4);
}

void Warpgroups::take_accumulator(const WgmmaThread& part, Lane& self, Site site) {
  Accumulator& mine = self.accumulators[part.d];
  const int registers = part.n / 2;
  if (mine.in_flight > 0) {
    if (mine.registers != registers)
      simt::fail(RuleId::bad_argument, site,
                 "wgmma: the product at " + words(mine.site) + " has these accumulators in another shape");
    if (!std::all_of(part.d, part.d + registers, is_poison))
      simt::fail(RuleId::in_flight, mine.site, "wgmma: accumulators were written before they were waited for");
  } else {
    if (self.fences == 0 || (mine.registers == registers && mine.fences_then == self.fences))
      simt::fail(RuleId::missing_fence, site,
                 "wgmma without wgmma_fence(): its accumulators may have been touched since they were waited for");
    if (mine.registers == registers && !mine.fenced.empty() &&
        std::memcmp(mine.fenced.data(), part.d, mine.fenced.size() * sizeof(float)) != 0)
      simt::fail(RuleId::missing_fence, site, "wgmma without wgmma_fence(): its accumulators have changed since the last one");
    mine.value.assign(part.d, part.d + registers);
    mine.registers = registers;
    self.in_flight.emplace_back(part.d, part.d + registers);
    ++in_flight_;
    std::fill_n(part.d, registers, std::bit_cast<float>(poison));
  }
  mine.site = site;
  ++mine.in_flight;
}

void Warpgroups::take_operand(const WgmmaThread& part, Lane& self, Site site) const {
  std::array<unsigned, 4> content{};
  std::copy_n(part.a_registers, 4, content.begin());
  const auto [known, is_new] = self.operands.try_emplace(part.a_registers, content);
  if (!is_new && known->second != content)
    simt::fail(RuleId::missing_fence, site, "wgmma without wgmma_fence(): A in registers has changed since the last one");
}

/// What registers hold now, products may use. Some of those known from products before may be no more, which a sanitizer would object to.
void Warpgroups::fence() {
  Lane& self = lane(scheduler_.current().number);
  ++self.fences;
  if (!instrumented) return self.operands.clear();
  for (auto& [a, content] : self.operands) std::copy_n(a, 4, content.begin());
  for (auto& [d, accumulator] : self.accumulators) {
    if (accumulator.in_flight == 0) accumulator.fenced.assign(d, d + accumulator.registers);
  }
}

void Warpgroups::commit(Site site) {
  Lane& self = lane(scheduler_.current().number);
  self.groups.push_back(self.issued);
  observers_.trace("commit", {{"products", static_cast<std::int64_t>(self.issued)}}, site);
}

// ---- waiting -----------------------------------------------------------------------------------------------------------------------

std::size_t Warpgroups::goal(const Lane& self) const {
  const auto newest = static_cast<std::size_t>(self.newest);
  return self.groups.size() > newest ? std::max(self.done, self.groups[self.groups.size() - 1 - newest]) : self.done;
}

void Warpgroups::wait(int newest, const float* const* complete, int count, Site site) {
  Thread& thread = scheduler_.current();
  Lane& self = lane(thread.number);
  self.newest = newest;
  const Trace::Number products{"products", static_cast<std::int64_t>(goal(self))};
  observers_.trace("wgmma wait", {products}, site);
  if (goal(self) > self.done) {
    self.waits = true;
    const int first = thread.number - thread.lane();
    bool all = true;
    for (int i = first; i < first + 32; ++i) all = all && lane(i).waits;
    if (all) scheduler_.later(thread, [this, warp = thread.warp(), site] { run(warp, site); });
    scheduler_.park("wgmma_wait", site);
    if (instruments.watch != nullptr) instruments.watch->acquire(thread.number, &lane(first));
  }
  observers_.trace("wgmma waited", {products}, site);
  for (int i = 0; i < count; ++i) {
    const auto found = self.accumulators.find(complete[i]);
    if (found == self.accumulators.end() || found->second.in_flight == 0) continue;
    const bool grouped = !self.groups.empty() && self.groups.back() == self.issued;
    simt::fail(RuleId::not_awaited, site,
               "wgmma_wait<" + std::to_string(newest) + "> does not wait for these accumulators: the product at " +
                   words(found->second.site) + (grouped ? " is of a newer group" : " may be in no group: wgmma_commit()"));
  }
}

void Warpgroups::run(int warp, Site site) {
  Lane* const lanes = &lane(warp * 32);
  for (int i = 1; i < 32; ++i) {
    if (lanes[i].issued != lanes[0].issued || goal(lanes[i]) != goal(lanes[0]))
      simt::fail(RuleId::warpgroup, site, "wgmma_wait: the lanes of a warp wait for different products");
  }
  Group& group = groups_[static_cast<std::size_t>(warp / 4)];
  const std::size_t end = goal(lanes[0]);
  for (std::size_t number = lanes[0].done; number < end; ++number) {
    Product& product = group.products[number - group.first];
    compute(warp, product, number);
    note_reads(product, warp % 4);
    if (++product.warps_done == 4) proxy_.end_reading(product.reading);
  }
  while (!group.products.empty() && group.products.front().warps_done == 4) {
    group.products.pop_front();
    ++group.first;
  }
  if (instruments.watch != nullptr) instruments.watch->release(scheduler_.current().number, lanes);
  std::vector<Thread*> threads;
  for (int i = 0; i < 32; ++i) {
    lanes[i].parts.erase(lanes[i].parts.begin(), lanes[i].parts.begin() + static_cast<std::ptrdiff_t>(end - lanes[i].done));
    lanes[i].done = end;
    lanes[i].waits = false;
    threads.push_back(scheduler_.threads()[static_cast<std::size_t>(warp * 32 + i)]);
  }
  scheduler_.wake(threads);
}

// ---- what must not be ------------------------------------------------------------------------------------------------------------------

std::string Warpgroups::still_in_flight(int thread, const float* accumulators) const {
  return "touches accumulators of the wgmma at " +
         words(lanes_[static_cast<std::size_t>(thread)].accumulators.at(accumulators).site) + " before it has waited for them";
}

void Warpgroups::thread_exits(const Thread& thread) const {
  const Lane& self = lanes_[static_cast<std::size_t>(thread.number)];
  if (self.done == self.issued) return;
  simt::fail(RuleId::not_awaited, self.accumulators.at(self.parts[0].d).site,
             "the thread ends without having waited for its wgmma");
}

void Warpgroups::end_block() const {
  for (const Group& group : groups_) {
    for (const Product& product : group.products) {
      simt::fail(RuleId::warpgroup, product.site,
                 "the block ends, and only " + std::to_string(product.warps_done) +
                     " of the 4 warps of the warpgroup took part in this wgmma");
    }
  }
}

}  // namespace flash::machine
