#include "common/simt/schedule.hpp"

#include "common/simt/machine/messages.hpp"

namespace flash {
inline namespace simt {

int Schedule::take(int usual) {
  const Turn now{block_, choice_++, usual};
  if (records_) {
    turns_.push_back(now);
    return usual;
  }
  while (next_ < turns_.size() && turns_[next_].comes_before(now)) ++next_;
  const bool wanted = next_ < turns_.size() && !now.comes_before(turns_[next_]);
  return wanted ? turns_[next_].taken : usual;
}

void Schedule::add(Switch found) {
  found.turn = turns_[next_];
  switches_.push_back(std::move(found));
}

std::string sentence(const Switch& found) {
  const auto from = [](Site site) { return site.line == 0 ? "the kernel's start" : machine::words(site); };
  const std::string first = "thread " + machine::words(found.thread), second = "thread " + machine::words(found.usual);
  const std::string where = "kernel " + found.kernel + ", block " + machine::words(found.block) + ": ";
  if (found.copies) return where + "a copy of " + first + " lands before an older one of " + second;
  const std::string text = where + first + " goes on from " + from(found.from) + " before " + second;
  return found.from == found.usual_from ? text : text + " goes on from " + from(found.usual_from);
}

}  // namespace simt
}  // namespace flash
