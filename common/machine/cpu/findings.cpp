#include "common/machine/cpu/findings.hpp"

#include "common/machine/engine/instrumentation.hpp"
#include "common/machine/engine/messages.hpp"
#include "common/machine/engine/race_detector.hpp"

#include <mutex>

namespace flash {
namespace {

std::mutex mutex;
simt::Findings all;
std::uintptr_t followed = 0;

}  // namespace

namespace machine {

std::uintptr_t followed_address() { return followed; }

GlobalWrites& global_writes() {
  static GlobalWrites writes;
  return writes;
}

void add_findings(RaceDetector& watch) {
  const std::lock_guard lock(mutex);
  watch.report(all);
}

void add_remark(const simt::ApartBarriers& barriers) {
  const std::lock_guard lock(mutex);
  all.barriers.insert(barriers);
}

}  // namespace machine

inline namespace simt {

Findings findings() {
  const std::lock_guard lock(mutex);
  return all;
}

void reset_findings() {
  const std::lock_guard lock(mutex);
  all = {};
  machine::global_writes() = {};
}

void follow_writes(const void* address) { followed = reinterpret_cast<std::uintptr_t>(address); }

bool was_written(const void* begin, std::size_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  for (std::uintptr_t at = first; at < first + bytes; ++at) {
    if ((machine::global_writes().of_word(at / 4) >> at % 4 & 1) == 0) return false;
  }
  return true;
}

std::string writer_near(const void* address) {
  const auto found = machine::global_writes().pages.find(reinterpret_cast<std::uintptr_t>(address) / 4 / machine::page_words);
  return found == machine::global_writes().pages.end() ? "" : found->second.writer;
}

bool can_watch() { return machine::instrumented; }

std::string sentence(const Race& race) {
  std::string text = race.first_line + (race.first_writes ? " writes" : " reads") + " and " + race.second_line +
                     (race.second_writes ? " writes" : " reads") + " the same " + (race.shared ? "shared" : "global") +
                     " memory, ";
  if (race.one_block) {
    text += "threads " + machine::words(race.first.thread) + " and " + machine::words(race.second.thread) + " of block " +
            machine::words(race.first.block) + ", with no barrier between them";
  } else {
    text += "blocks " + machine::words(race.first.block) + " and " + machine::words(race.second.block) +
            (race.block_atomics              ? ", and an atomic of one block is none for the other"
             : race.remark == RuleId::ticket ? ", which an atomic orders only if a __threadfence() follows it"
                                             : ", which only a __threadfence() with an atomic could order");
  }
  if (race.remark == RuleId::read_before_atomic)
    text += "; the read comes before an atomic of the same thread, which is right if that checks the value as atomicCAS does";
  if (race.remark == RuleId::same_value) text += ", but each time the same value";
  return text + " (kernel " + race.kernel + race.called_from + ")";
}

std::string sentence(const UnwrittenRead& read) {
  const char* const missing = read.early
                                  ? "the previous kernel may not have written yet: its launch is early, and it has not waited"
                              : read.late ? "no thread may have written yet: nothing orders its first store before this"
                                          : "no thread has written";
  return read.line + " reads " + (read.shared ? "shared" : "global") + " memory that " + missing + ", thread " +
         machine::words(read.reader.thread) + " of block " + machine::words(read.reader.block) + " (kernel " + read.kernel +
         read.called_from + ")";
}

}  // namespace simt
}  // namespace flash
