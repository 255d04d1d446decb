#include "common/machine/engine/stall_timer.hpp"

#include "common/machine/engine/instrumentation.hpp"

#include <unistd.h>

namespace flash::machine {
namespace {

thread_local int most_seconds = 0, still = 0;
thread_local std::int64_t seen = 0;

}  // namespace

StallTimer::StallTimer([[maybe_unused]] int seconds) {
#ifdef __linux__
  most_seconds = seconds;
  still = 0;
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = stall_signal;
  event._sigev_un._tid = gettid();
  timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_);
  const itimerspec every{{1, 0}, {1, 0}};
  timer_settime(timer_, 0, &every, nullptr);
#endif
}

StallTimer::~StallTimer() {
#ifdef __linux__
  timer_delete(timer_);
#endif
}

bool stands_still() {
  still = instruments.steps_left == seen ? still + 1 : 0;
  seen = instruments.steps_left;
  return still >= most_seconds;
}

}  // namespace flash::machine
