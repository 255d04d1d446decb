// Notices CUDA threads that compute for ever without an access to memory or a barrier, so that no steps can be counted. On Linux.
#pragma once

#include <signal.h>
#include <time.h>

namespace flash::machine {

constexpr int stall_signal = SIGVTALRM;

/// While one lives, the operating-system thread that made it gets the signal after each second of its processor time.
class StallTimer {
 public:
  /// A CUDA thread that has not made a step for so many seconds counts as endless.
  explicit StallTimer(int seconds);
  ~StallTimer();
  StallTimer(const StallTimer&) = delete;
  StallTimer& operator=(const StallTimer&) = delete;

#ifdef __linux__
 private:
  timer_t timer_{};
#endif
};

/// For the handler of the signal: has the calling thread not moved for too long?
bool stands_still();

}  // namespace flash::machine
