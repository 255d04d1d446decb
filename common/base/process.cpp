#include "common/base/process.hpp"

#include "common/base/error.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

namespace flash {
namespace {

using Clock = std::chrono::steady_clock;

/// Closes its ends, which programs do not inherit.
struct Pipe {
  int read_end = -1, write_end = -1;

  Pipe() {
    int ends[2];
    if (pipe(ends) != 0) throw UsageError(std::string("no pipe to a child process: ") + std::strerror(errno));
    for (const int end : ends) fcntl(end, F_SETFD, FD_CLOEXEC);
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    shut(read_end);
    shut(write_end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  static void shut(int& end) {
    if (end >= 0) close(end);
    end = -1;
  }
};

/// More on a stream than any stage or script writes.
constexpr std::size_t output_limit = std::size_t{64} << 20;

/// Reads what is there. False at the end of the stream.
bool drain(int from, std::string& to) {
  std::array<char, 65536> chunk;
  const ssize_t count = read(from, chunk.data(), chunk.size());
  if (count > 0) to.append(chunk.data(), static_cast<std::size_t>(count));
  return count > 0 || (count < 0 && errno == EINTR);
}

}  // namespace

std::string complaint(const ProcessResult& result) {
  if (result.timed_out) return "it took too long";
  if (result.signal == 0 && result.exit_code == 0) return "";
  const std::string text = result.error.substr(0, result.error.find_last_not_of(" \n") + 1);
  const std::string line = text.substr(text.rfind('\n') + 1);
  if (!line.empty()) return line;
  if (result.signal != 0) return std::string("it was ended by a signal: ") + strsignal(result.signal);
  return "it ended with exit code " + std::to_string(result.exit_code);
}

struct ChildProcess {
  Pipe input, output, error;
  pid_t process = -1;
  std::array<pollfd, 2> streams{{{output.read_end, POLLIN, 0}, {error.read_end, POLLIN, 0}}};  ///< -1: it has ended

  explicit ChildProcess(const std::vector<std::string>& arguments) {
    std::vector<char*> argv;
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    const pid_t parent = getpid();
    process = fork();
    if (process < 0) throw UsageError(std::string("no child process: ") + std::strerror(errno));
    if (process == 0) become(argv.data(), parent);
    for (int* end : {&input.read_end, &output.write_end, &error.write_end}) Pipe::shut(*end);
  }

  /// The program takes the place of this copy.
  [[noreturn]] void become(char* const* argv, pid_t parent) const {
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a run can last hours: nobody would know of one that outlived this program
#endif
    if (getppid() != parent) _exit(127);  // it has just ended, before this copy could ask for the signal
    dup2(input.read_end, STDIN_FILENO);
    fcntl(STDIN_FILENO, F_SETFD, 0);  // dup2() onto itself keeps FD_CLOEXEC
    dup2(output.write_end, STDOUT_FILENO);
    dup2(error.write_end, STDERR_FILENO);
    execvp(argv[0], argv);
    dprintf(STDERR_FILENO, "it cannot be started: %s\n", std::strerror(errno));
    _exit(127);
  }

  /// A program that has ended does not read it, which its silence tells too.
  void send(const std::string& line) const {
    const auto before = std::signal(SIGPIPE, SIG_IGN);
    [[maybe_unused]] const ssize_t sent = ::write(input.write_end, line.data(), line.size());
    std::signal(SIGPIPE, before);
  }

  /// Reads both streams until both have ended, a whole `line` is there if that is enough, or the deadline is. Both at once: a child
  /// that fills one while we wait for the other would hang.
  void listen(ProcessResult& result, bool line, Clock::time_point deadline) {
    while ((streams[0].fd >= 0 || streams[1].fd >= 0) && Clock::now() < deadline && !(line && result.output.ends_with('\n'))) {
      poll(streams.data(), streams.size(), 100);
      for (std::size_t i = 0; i < streams.size(); ++i) {
        if ((streams[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
        std::string& text = i == 0 ? result.output : result.error;
        if (!drain(streams[i].fd, text)) streams[i].fd = -1;  // poll() skips it
        if (text.size() <= output_limit) continue;
        kill(process, SIGKILL);
        result.output.clear();
        result.error = "it wrote more than " + std::to_string(output_limit >> 20) + " MiB";
        return;
      }
    }
  }

  /// Waits for its end, by force past the deadline, and notes how it ended. It may have closed its streams long before, so that the
  /// end of these says nothing.
  void end(ProcessResult& result, Clock::time_point deadline) const {
    int status = 0;
    while (waitpid(process, &status, WNOHANG) == 0) {
      if (!result.timed_out && Clock::now() >= deadline) {
        kill(process, SIGKILL);
        result.timed_out = true;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
    if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  }
};

ProcessResult run_process(const std::vector<std::string>& arguments, std::chrono::milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  ProcessResult result;
  ChildProcess child(arguments);
  Pipe::shut(child.input.write_end);
  child.listen(result, false, deadline);
  child.end(result, deadline);
  return result;
}

Conversation::Conversation(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}

Conversation::~Conversation() {
  ProcessResult ignored;
  if (child_) child_->end(ignored, Clock::now());
}

ProcessResult Conversation::ask(const std::string& question, std::chrono::milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  ProcessResult result;
  if (!child_) child_ = std::make_unique<ChildProcess>(arguments_);
  child_->send(question + "\n");
  child_->listen(result, true, deadline);
  if (result.output.ends_with('\n')) return result;
  child_->end(result, deadline);
  child_.reset();
  return result;
}

}  // namespace flash
