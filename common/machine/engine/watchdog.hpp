// Notices CUDA threads that compute for ever without an access to memory or a barrier, so that no steps can be counted.
#pragma once

#include <signal.h>

namespace flash::machine {

/// What the timer sends after each second of processor time; the handler asks stands_still().
constexpr int watchdog_signal = SIGVTALRM;

/// While one lives, the timer runs. A CUDA thread that has not made a step for so many seconds counts as endless.
class Watchdog {
 public:
  explicit Watchdog(int seconds);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
};

/// While one lives, the operating-system thread that made it is looked at: whether the steps of its CUDA threads (Instruments) change.
class Watched {
 public:
  Watched();
  ~Watched();
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
};

/// For the handler of the signal: has the calling thread not moved for too long? Passes the signal on to others that have not.
bool stands_still();

}  // namespace flash::machine
