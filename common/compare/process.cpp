#include "common/compare/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <thread>

extern char** environ;

namespace flash {
namespace {

using Clock = std::chrono::steady_clock;

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

/// A pipe whose ends close themselves and are not inherited.
struct Pipe {
  int read_end = -1, write_end = -1;

  Pipe() {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error(std::string("no pipe: ") + std::strerror(errno));
    read_end = ends[0];
    write_end = ends[1];
    for (const int end : ends) fcntl(end, F_SETFD, FD_CLOEXEC);
  }
  ~Pipe() {
    close(read_end);
    close_write_end();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  void close_write_end() {
    if (write_end >= 0) close(write_end);
    write_end = -1;
  }
};

/// Starts the child; 0 or the reason why not.
int spawn(pid_t& child, const std::vector<std::string>& arguments, const Pipe& output, const Pipe& error) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
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

std::string complaint(const ProcessResult& result) {
  if (!result.started) return result.error;
  if (result.timed_out) return "it took too long";
  if (result.signal == 0 && result.exit_code == 0) return "";
  const std::string text = result.error.substr(0, result.error.find_last_not_of(" \n") + 1);
  const std::string line = text.substr(text.rfind('\n') + 1);
  if (!line.empty()) return line;
  if (result.signal != 0) return std::string("it was ended by a signal: ") + strsignal(result.signal);
  return "it ended with exit code " + std::to_string(result.exit_code);
}

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

ProcessResult run_process(const std::vector<std::string>& arguments, std::chrono::milliseconds limit,
                          const std::function<void()>& meanwhile) {
  ProcessResult result;
  Pipe output, error;
  pid_t child = 0;
  if (const int failure = spawn(child, arguments, output, error); failure != 0) {
    result.error = std::strerror(failure);
    return result;
  }
  result.started = true;
  output.close_write_end();
  error.close_write_end();

  // Both pipes are read at once: a child that fills one while we wait for the other would hang.
  std::array<pollfd, 2> waiting{{{output.read_end, POLLIN, 0}, {error.read_end, POLLIN, 0}}};
  const Clock::time_point deadline = Clock::now() + limit;
  while ((waiting[0].fd >= 0 || waiting[1].fd >= 0) && Clock::now() < deadline) {
    poll(waiting.data(), waiting.size(), 100);
    if (meanwhile) meanwhile();
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if ((waiting[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
      if (!drain(waiting[i].fd, i == 0 ? result.output : result.error)) waiting[i].fd = -1;  // poll() skips it
    }
  }
  const int status = wait_until(child, deadline, result.timed_out);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

}  // namespace flash
