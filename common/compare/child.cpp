#include "common/compare/child.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <thread>

extern char** environ;

namespace flash {
namespace {

using Clock = ProcessClock;

constexpr int stopping_signals[]{SIGINT, SIGTERM, SIGHUP};

/// The child that runs, or 0: one at a time. Changed by the handler, or while the signals are held.
std::atomic<pid_t> running_child = 0;
static_assert(std::atomic<pid_t>::is_always_lock_free, "the signal handler uses it");

/// What the handler writes. Changed while the signals are held.
std::string last_words;

/// A GPU or simulator run can last hours: nobody would know of a child that outlived this program.
extern "C" void stop_child(int number) {
  if (const pid_t child = running_child.exchange(0); child > 0) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);  // its memory, the GPU's too, is free again when this program has ended
  }
  // Nothing can be done about an error here.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, last_words.data(), last_words.size());
  // SA_RESETHAND has put the default action back: this ends the program once the handler returns.
  raise(number);
}

/// Reads what is there. False at the end of the stream.
bool drain(int from, std::string& to) {
  std::array<char, 65536> chunk;
  const ssize_t count = read(from, chunk.data(), chunk.size());
  if (count > 0) to.append(chunk.data(), static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && errno == EINTR);
}

/// Waits for the child to end and returns its status. Past the deadline the child is killed. It may have closed its streams long
/// before, so that the end of these says nothing.
int wait_until(pid_t child, Clock::time_point deadline, bool& timed_out) {
  int status = 0;
  for (;;) {
    {
      // Once waited for, the number may become that of another process: the handler must not see it any more. The program must
      // not sleep in here, or signals would wait too.
      const SignalsHeld held;
      const pid_t ended = waitpid(child, &status, WNOHANG);
      if (ended == child) {
        running_child = 0;
        return status;
      }
      if (ended < 0 && errno != EINTR) {
        throw std::runtime_error(std::string("waiting for a child: ") + std::strerror(errno));
      }
    }
    if (!timed_out && Clock::now() >= deadline) {
      kill(child, SIGKILL);
      timed_out = true;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

}  // namespace

void stop_child_on_signals() {
  struct sigaction action {};
  action.sa_handler = stop_child;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int number : stopping_signals) {
    struct sigaction before {};
    sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);  // nohup ignores SIGHUP
  }
}

void say_on_signal(const std::string& text) {
  const SignalsHeld held;
  last_words = text.empty() ? "" : "\n" + text;  // below the line that was being written
}

SignalsHeld::SignalsHeld() {
  sigset_t held;
  sigemptyset(&held);
  for (const int number : stopping_signals) sigaddset(&held, number);
  pthread_sigmask(SIG_BLOCK, &held, &before_);
}

SignalsHeld::~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

Pipe::Pipe() {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error(std::string("no pipe: ") + std::strerror(errno));
  read_end = ends[0];
  write_end = ends[1];
  for (const int end : ends) fcntl(end, F_SETFD, FD_CLOEXEC);
}

Pipe::~Pipe() {
  close_read_end();
  close_write_end();
}

void Pipe::close_read_end() {
  if (read_end >= 0) close(read_end);
  read_end = -1;
}

void Pipe::close_write_end() {
  if (write_end >= 0) close(write_end);
  write_end = -1;
}

int spawn(pid_t& child, const std::vector<std::string>& arguments, int input, const Pipe& output, const Pipe& error) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (input < 0) posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (input >= 0) posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output.write_end, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error.write_end, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const SignalsHeld held;  // no signal between the start and its note
  posix_spawnattr_setsigmask(&attributes, &held.before());
  const int failure = posix_spawnp(&child, argv[0], &actions, &attributes, argv.data(), environ);
  if (failure == 0) running_child = child;
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return failure;
}

void listen(Streams& streams, ProcessResult& result, Clock::time_point deadline, const std::function<void()>& meanwhile,
            const std::function<bool()>& enough) {
  while ((streams[0].fd >= 0 || streams[1].fd >= 0) && Clock::now() < deadline && !enough()) {
    poll(streams.data(), streams.size(), 100);
    if (meanwhile) meanwhile();
    for (std::size_t i = 0; i < streams.size(); ++i) {
      if ((streams[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
      if (!drain(streams[i].fd, i == 0 ? result.output : result.error)) streams[i].fd = -1;  // poll() skips it
    }
  }
}

void note_end(pid_t child, ProcessResult& result, Clock::time_point deadline) {
  const int status = wait_until(child, deadline, result.timed_out);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
}

}  // namespace flash
