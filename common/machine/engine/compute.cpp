// What each lane gets from a warp operation.
#include "common/machine/cpu/thread.hpp"
#include "common/machine/engine/messages.hpp"
#include "common/machine/engine/worker.hpp"

#include <algorithm>

namespace flash::machine {
namespace {

using Lanes = std::vector<Thread*>;

/// The lane that this one reads in a shuffle, before it is known whether it takes part. PTX ISA, shfl.sync.
int source_lane(const Thread& thread) {
  const WarpRequest& request = thread.request;
  const int lane = thread.lane();
  const int first = lane & ~(request.width - 1);  // of the group of `width` lanes
  const int last = first + request.width - 1;
  switch (request.operation) {
    case WarpOperation::shfl:
      return first + (request.argument & (request.width - 1));
    case WarpOperation::shfl_up:
      return lane - request.argument >= first ? lane - request.argument : lane;
    case WarpOperation::shfl_down:
      return lane + request.argument <= last ? lane + request.argument : lane;
    default:
      return (lane ^ request.argument) <= last ? lane ^ request.argument : lane;
  }
}

void shuffle(const Lanes& lanes, bool lenient) {
  const Thread* by_lane[warpSize] = {};
  for (const Thread* thread : lanes) by_lane[thread->lane()] = thread;
  for (Thread* thread : lanes) {
    const int width = thread->request.width;
    const auto refuse = [&](RuleId rule, const std::string& why) {
      Worker::running()->scheduler.current().index = thread->index;  // whom the message names
      simt::fail(rule, thread->site, std::string(name_of(thread->request.operation)) + ": " + why);
    };
    if (width < 1 || width > warpSize || (width & (width - 1)) != 0) {
      refuse(RuleId::bad_argument, "a width of " + std::to_string(width) + "; allowed are 1, 2, 4, 8, 16, 32");
    }
    const int source = source_lane(*thread);
    if (source < 0 || source >= warpSize) {
      refuse(RuleId::absent_lane, "lane " + std::to_string(thread->lane()) + " reads from lane " + std::to_string(source));
    }
    if (by_lane[source] == nullptr && !lenient) {
      refuse(RuleId::absent_lane, "lane " + std::to_string(thread->lane()) + " reads from lane " + std::to_string(source) +
                                      ", which does not take part: the mask names " + lanes_of(thread->request.mask));
    }
    thread->result = by_lane[source] == nullptr ? ~std::uint64_t{0} : by_lane[source]->request.value;
  }
}

template <class Combine>
void reduce(const Lanes& lanes, Combine combine) {
  auto reduced = static_cast<unsigned>(lanes.front()->request.value);
  for (std::size_t i = 1; i < lanes.size(); ++i) reduced = combine(reduced, static_cast<unsigned>(lanes[i]->request.value));
  for (Thread* lane : lanes) lane->result = reduced;
}

unsigned as_unsigned(int value) { return static_cast<unsigned>(value); }
int as_signed(unsigned value) { return static_cast<int>(value); }

/// The lanes whose value is that of `thread`.
unsigned same_value(const Lanes& lanes, const Thread& thread) {
  unsigned same = 0;
  for (const Thread* lane : lanes) {
    if (lane->request.value == thread.request.value) same |= 1u << lane->lane();
  }
  return same;
}

}  // namespace

void compute(WarpOperation operation, const Lanes& lanes, bool lenient) {
  unsigned mask = 0, votes = 0;
  for (const Thread* lane : lanes) mask |= 1u << lane->lane();
  for (const Thread* lane : lanes) votes |= static_cast<unsigned>(lane->request.value != 0) << lane->lane();
  const auto give_all = [&](std::uint64_t result) {
    for (Thread* lane : lanes) lane->result = result;
  };
  switch (operation) {
    case WarpOperation::shfl:
    case WarpOperation::shfl_up:
    case WarpOperation::shfl_down:
    case WarpOperation::shfl_xor:
      return shuffle(lanes, lenient);
    case WarpOperation::ballot:
      return give_all(votes);
    case WarpOperation::any:
      return give_all(votes != 0);
    case WarpOperation::all:
      return give_all(votes == mask);
    case WarpOperation::match_any:
      for (Thread* lane : lanes) lane->result = same_value(lanes, *lane);
      return;
    case WarpOperation::match_all:
      return give_all(same_value(lanes, *lanes.front()) == mask ? mask : 0);
    case WarpOperation::add:
      return reduce(lanes, [](unsigned a, unsigned b) { return a + b; });
    case WarpOperation::bit_and:
      return reduce(lanes, [](unsigned a, unsigned b) { return a & b; });
    case WarpOperation::bit_or:
      return reduce(lanes, [](unsigned a, unsigned b) { return a | b; });
    case WarpOperation::bit_xor:
      return reduce(lanes, [](unsigned a, unsigned b) { return a ^ b; });
    case WarpOperation::min_unsigned:
      return reduce(lanes, [](unsigned a, unsigned b) { return std::min(a, b); });
    case WarpOperation::max_unsigned:
      return reduce(lanes, [](unsigned a, unsigned b) { return std::max(a, b); });
    case WarpOperation::min_signed:
      return reduce(lanes, [](unsigned a, unsigned b) { return as_unsigned(std::min(as_signed(a), as_signed(b))); });
    case WarpOperation::max_signed:
      return reduce(lanes, [](unsigned a, unsigned b) { return as_unsigned(std::max(as_signed(a), as_signed(b))); });
    case WarpOperation::syncwarp:
    case WarpOperation::ldmatrix:
    case WarpOperation::stmatrix:
    case WarpOperation::mma:
    case WarpOperation::elect:
      return;
  }
}

}  // namespace flash::machine
