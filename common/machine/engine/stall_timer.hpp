// Notices CUDA threads that compute for ever without an access to memory or a barrier, so that no steps can be counted.
#pragma once

#include <signal.h>

namespace flash::machine {

/// What the timer sends after each second of processor time; the handler asks stands_still().
constexpr int stall_signal = SIGVTALRM;

/// While one lives, the timer runs. A CUDA thread that has not made a step for so many seconds counts as endless.
class StallTimer {
 public:
  explicit StallTimer(int seconds);
  ~StallTimer();
  StallTimer(const StallTimer&) = delete;
  StallTimer& operator=(const StallTimer&) = delete;
};

/// While one lives, the operating-system thread that made it is looked at: whether the steps of its CUDA threads (Instruments) change.
class TimedThread {
 public:
  TimedThread();
  ~TimedThread();
  TimedThread(const TimedThread&) = delete;
  TimedThread& operator=(const TimedThread&) = delete;
  /// The calling thread waits for others, or does so no longer.
  static void rest(bool);
};

/// For the handler of the signal: has the calling thread not moved for too long? Passes the signal on to others that have not.
bool stands_still();

}  // namespace flash::machine
