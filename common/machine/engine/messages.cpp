#include "common/machine/engine/messages.hpp"

#include "common/machine/cpu/thread.hpp"
#include "common/machine/engine/sanitizer.hpp"
#include "common/machine/engine/source_line.hpp"
#include "common/machine/engine/worker.hpp"
#include "common/machine/error.hpp"

#include <cstring>
#include <sstream>
#include <string_view>

namespace flash {
namespace machine {
namespace {

/// "3", "0..7", "0..3, 9": numbers in ascending order.
std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += std::to_string(numbers[i]);
    if (last > i) text += ".." + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text;
}

struct Place {
  State state;
  const char* call;
  Site site;
  CallPlace called;  ///< of the first thread
  std::vector<int> threads;
};

Place place_of(const Thread& thread) {
  switch (thread.state) {
    case State::at_barrier:
      return {thread.state, name_of(thread.barrier), thread.site, thread.called, {}};
    case State::in_warp_operation:
      return {thread.state, name_of(thread.request.operation), thread.site, thread.called, {}};
    case State::parked:
      return {thread.state, thread.parked_in, thread.site, thread.called, {}};
    case State::ready:
    case State::exited:
      break;
  }
  return {thread.state, "", {}, {}, {}};
}

}  // namespace

const char* name_of(WarpOperation operation) {
  static constexpr const char* names[] = {"__syncwarp",        "__shfl_sync",       "__shfl_up_sync",
                                          "__shfl_down_sync",  "__shfl_xor_sync",   "__ballot_sync",
                                          "__any_sync",        "__all_sync",        "__match_any_sync",
                                          "__match_all_sync",  "__reduce_add_sync", "__reduce_min_sync",
                                          "__reduce_max_sync", "__reduce_min_sync", "__reduce_max_sync",
                                          "__reduce_and_sync", "__reduce_or_sync",  "__reduce_xor_sync",
                                          "ldmatrix",          "stmatrix",          "mma",
                                          "elect_one"};
  return names[static_cast<std::size_t>(operation)];
}

const char* name_of(BarrierKind kind) {
  static constexpr const char* names[] = {"__syncthreads", "__syncthreads_count", "__syncthreads_and", "__syncthreads_or"};
  return names[static_cast<std::size_t>(kind)];
}

std::string lanes_of(unsigned mask) {
  std::vector<int> lanes;
  for (int lane = 0; lane < warpSize; ++lane) {
    if ((mask >> lane & 1u) != 0) lanes.push_back(lane);
  }
  if (lanes.empty()) return "no lane";
  return (lanes.size() == 1 ? "lane " : "lanes ") + ranges(lanes);
}

std::string words(const uint3& index) {
  return "(" + std::to_string(index.x) + "," + std::to_string(index.y) + "," + std::to_string(index.z) + ")";
}

std::string without_source_dir(std::string_view path) {
  if (path.starts_with(FLASH_SOURCE_DIR "/")) path.remove_prefix(std::strlen(FLASH_SOURCE_DIR "/"));
  return std::string(path);
}

std::string words(Site site) { return without_source_dir(site.file) + ":" + std::to_string(site.line); }

std::string hexadecimal(std::uintptr_t number) {
  std::ostringstream text;
  text << "0x" << std::hex << number;
  return text.str();
}

std::string waits(const std::vector<Thread*>& threads) {
  std::vector<Place> places;
  for (const Thread* thread : threads) {
    Place here = place_of(*thread);
    Place* known = nullptr;
    for (Place& place : places) {
      if (place.state == here.state && std::strcmp(place.call, here.call) == 0 && place.site == here.site) known = &place;
    }
    if (known == nullptr) known = &places.emplace_back(std::move(here));
    known->threads.push_back(thread->number);
  }
  std::string text, rest;
  for (const Place& place : places) {
    if (place.state == State::exited) rest = "the rest exited";
    if (place.state == State::exited || place.state == State::ready) continue;
    const bool one = place.threads.size() == 1;
    if (!text.empty()) text += ", ";
    text += (one ? "thread " : "threads ") + ranges(place.threads) + (one ? " waits in " : " wait in ") + place.call + " at " +
            words(place.site) + caller_of(place.site, place.called);
  }
  if (!rest.empty()) text += ", " + rest;
  return text;
}

}  // namespace machine

inline namespace simt {

void fail(RuleId rule, Site site, const std::string& message) {
  const machine::sanitizer::Unwatched unwatched;
  machine::SourceLine line{machine::words(site), ""};
  std::string where;
  if (const machine::Worker* worker = machine::Worker::running()) {
    where = worker->scheduler.place(true) + ": ";
    const machine::SourceLine call = machine::source_line_of_call(nullptr);
    if (call.line == line.line) line.caller = call.caller;
    if (machine::is_machine(site.file)) line = call;
  }
  const std::string at = " at " + machine::words(line);
  throw KernelError(name_of(rule), where + message + ((message + ",").find(at + ",") != std::string::npos ? "" : at));
}

void fail(RuleId rule, Site site, const char* message) {
  const machine::sanitizer::Unwatched unwatched;
  fail(rule, site, std::string(message));
}

}  // namespace simt
}  // namespace flash
