// A child process and its streams: what is behind process.hpp.
#pragma once

#include "common/compare/process.hpp"

#include <poll.h>
#include <sys/types.h>

#include <array>

namespace flash {

using ProcessClock = std::chrono::steady_clock;

/// A pipe whose ends close themselves and are not inherited.
struct Pipe {
  int read_end = -1, write_end = -1;

  Pipe();
  ~Pipe();
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  void close_read_end();
  void close_write_end();
};

/// Output and error of a child. A stream that has ended has the number -1.
using Streams = std::array<pollfd, 2>;

/// Starts the child; 0 or the reason why not. `input`: what it reads, or -1 for nothing. One child at a time.
int spawn(pid_t& child, const std::vector<std::string>& arguments, int input, const Pipe& output, const Pipe& error);

/// Reads both streams until both have ended, `enough` says so or the deadline is there. Both at once: a child that fills one while we
/// wait for the other would hang.
void listen(Streams&, ProcessResult&, ProcessClock::time_point deadline, const std::function<void()>& meanwhile,
            const std::function<bool()>& enough);

/// Waits for the child's end, by force past the deadline, and notes how it ended.
void note_end(pid_t child, ProcessResult&, ProcessClock::time_point deadline);

}  // namespace flash
