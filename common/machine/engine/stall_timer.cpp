#include "common/machine/engine/stall_timer.hpp"

#include "common/machine/engine/instrumentation.hpp"

#include <pthread.h>
#include <sys/time.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>

namespace flash::machine {
namespace {

/// A thread under watch. The signal handler may run in any thread, so nothing here takes a lock. Steps are read while their thread changes
/// them: an old value only delays the alarm.
struct Entry {
  std::atomic<bool> taken = false, watched = false;
  pthread_t thread{};
  const volatile std::int64_t* steps = nullptr;
  std::int64_t seen = 0;
  int still = 0;  ///< for how many seconds
};

std::array<Entry, 1024> entries;  // as many as FLASH_SIMT_THREADS allows; whoever finds no place is not watched
thread_local Entry* mine = nullptr;

std::mutex timer_mutex;
int timer_users = 0;
std::atomic<int> most_seconds = 10;

void set_timer(int seconds) {
  const itimerval every{{seconds, 0}, {seconds, 0}};
  setitimer(ITIMER_VIRTUAL, &every, nullptr);
}

}  // namespace

StallTimer::StallTimer(int seconds) {
  const std::lock_guard lock(timer_mutex);
  most_seconds = seconds;
  if (timer_users++ == 0) set_timer(1);
}

StallTimer::~StallTimer() {
  const std::lock_guard lock(timer_mutex);
  if (--timer_users == 0) set_timer(0);
}

TimedThread::TimedThread() {
  for (Entry& entry : entries) {
    if (entry.taken.exchange(true)) continue;
    entry.thread = pthread_self();
    entry.steps = &instruments.steps_left;
    entry.seen = entry.still = 0;
    mine = &entry;
    entry.watched = true;
    return;
  }
}

TimedThread::~TimedThread() {
  if (mine == nullptr) return;
  mine->watched = false;
  mine->taken = false;
  mine = nullptr;
}

void TimedThread::rest(bool rests) {
  if (mine == nullptr) return;
  mine->still = 0;
  mine->watched = !rests;
}

bool stands_still() {
  if (mine != nullptr && mine->still >= most_seconds && *mine->steps == mine->seen) return true;  // passed on
  for (Entry& entry : entries) {
    if (!entry.watched) continue;
    const std::int64_t steps = *entry.steps;
    entry.still = steps == entry.seen ? entry.still + 1 : 0;
    entry.seen = steps;
    if (&entry != mine && entry.still >= most_seconds) pthread_kill(entry.thread, stall_signal);
  }
  return mine != nullptr && mine->still >= most_seconds;
}

}  // namespace flash::machine
