#include "common/base/process.hpp"

#include "common/base/error.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

namespace flash {
namespace {

using Clock = std::chrono::steady_clock;

/// Takes what a program writes to a stream: a file without a name, since a pipe would have to be read before it is full.
class Captured {
 public:
  Captured() : file_(std::tmpfile()) {
    if (file_ == nullptr) throw UsageError(std::string("no temporary file for a child process: ") + std::strerror(errno));
    fcntl(descriptor(), F_SETFD, FD_CLOEXEC);
    fcntl(descriptor(), F_SETFL, O_APPEND);  // after clear() the program goes on at the start
  }
  ~Captured() { std::fclose(file_); }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  int descriptor() const { return fileno(file_); }

  std::string text() const {
    struct stat status {};
    fstat(descriptor(), &status);
    std::string text(static_cast<std::size_t>(status.st_size), '\0');
    const ssize_t count = pread(descriptor(), text.data(), text.size(), 0);
    text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return text;
  }

  [[nodiscard]] bool clear() const { return ftruncate(descriptor(), 0) == 0; }

 private:
  std::FILE* file_;
};

}  // namespace

std::string complaint(const ProcessResult& result) {
  if (result.timed_out) return "it took too long";
  if (result.signal == 0 && result.exit_code == 0) return "";
  const std::string text = result.error.substr(0, result.error.find_last_not_of(" \n") + 1);
  const std::string line = text.substr(text.rfind('\n') + 1);
  if (result.signal != 0) {
    return "ended by signal " + std::to_string(result.signal) + " (" + strsignal(result.signal) + ")" +
           (line.empty() ? "" : ": " + line);
  }
  return line.empty() ? "it ended with exit code " + std::to_string(result.exit_code) : line;
}

struct ChildProcess {
  Captured output, error;
  int input = -1;  ///< the end of a pipe from which it reads
  pid_t process = -1;
  bool ended = false;
  int status = 0;

  explicit ChildProcess(const std::vector<std::string>& arguments) {
    std::vector<char*> argv;
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    int ends[2];
    if (pipe(ends) != 0) throw UsageError(std::string("no pipe to a child process: ") + std::strerror(errno));
    for (const int end : ends) fcntl(end, F_SETFD, FD_CLOEXEC);
    const pid_t parent = getpid();
    process = fork();
    if (process < 0) throw UsageError(std::string("no child process: ") + std::strerror(errno));
    if (process == 0) become(argv.data(), ends[0], parent);
    close(ends[0]);
    input = ends[1];
  }
  ~ChildProcess() { hang_up(); }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// The program takes the place of this copy.
  [[noreturn]] void become(char* const* argv, int questions, pid_t parent) const {
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a run can last hours: nobody would know of one that outlived this program
#endif
    if (getppid() != parent) _exit(127);  // it has just ended, before this copy could ask for the signal
    dup2(questions, STDIN_FILENO);
    fcntl(STDIN_FILENO, F_SETFD, 0);  // dup2() onto itself keeps FD_CLOEXEC
    dup2(output.descriptor(), STDOUT_FILENO);
    dup2(error.descriptor(), STDERR_FILENO);
    execvp(argv[0], argv);
    dprintf(STDERR_FILENO, "it cannot be started: %s\n", std::strerror(errno));
    _exit(127);
  }

  /// It finds no more input.
  void hang_up() {
    if (input >= 0) close(input);
    input = -1;
  }

  /// A program that has ended does not read it, which its silence tells too.
  void send(const std::string& line) const {
    const auto before = std::signal(SIGPIPE, SIG_IGN);
    [[maybe_unused]] const ssize_t sent = ::write(input, line.data(), line.size());
    std::signal(SIGPIPE, before);
  }

  /// Waits for its end or, if `line` is set, for a whole line of its output. Past the deadline it is killed.
  ProcessResult wait(bool line, Clock::time_point deadline) {
    ProcessResult result;
    while (!ended && !(line && output.text().ends_with('\n'))) {
      ended = waitpid(process, &status, WNOHANG) != 0;
      if (!ended && !result.timed_out && Clock::now() >= deadline) {
        kill(process, SIGKILL);
        result.timed_out = true;
      }
      if (!ended) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    result.output = output.text();
    result.error = error.text();
    if (ended && WIFSIGNALED(status)) result.signal = WTERMSIG(status);
    if (ended && WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
    return result;
  }
};

ProcessResult run_process(const std::vector<std::string>& arguments, std::chrono::milliseconds limit) {
  ChildProcess child(arguments);
  child.hang_up();
  return child.wait(false, Clock::now() + limit);
}

Conversation::Conversation(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}

Conversation::~Conversation() {
  if (child_) child_->wait(false, Clock::now());
}

ProcessResult Conversation::ask(const std::string& question, std::chrono::milliseconds limit) {
  if (!child_) child_ = std::make_unique<ChildProcess>(arguments_);
  if (!child_->output.clear() || !child_->error.clear())
    throw UsageError("a temporary file of a child process cannot be emptied");
  child_->send(question + "\n");
  ProcessResult result = child_->wait(true, Clock::now() + limit);
  if (child_->ended) child_.reset();
  return result;
}

}  // namespace flash
