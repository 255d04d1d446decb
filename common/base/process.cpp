#include "common/base/process.hpp"

#include "common/machine/error.hpp"

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

 private:
  std::FILE* file_;
};

/// The program takes the place of this copy of the process `parent`.
[[noreturn]] void become(char* const* argv, const Captured& output, const Captured& error, pid_t parent) {
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody would know of a run that outlived this program
#endif
  if (getppid() != parent) _exit(127);  // it has just ended, before this copy could ask for the signal
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  dup2(output.descriptor(), STDOUT_FILENO);
  dup2(error.descriptor(), STDERR_FILENO);
  execvp(argv[0], argv);
  dprintf(STDERR_FILENO, "it cannot be started: %s\n", std::strerror(errno));
  _exit(127);
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, std::chrono::milliseconds limit) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const Captured output, error;
  const pid_t parent = getpid(), process = fork();
  if (process < 0) throw UsageError(std::string("no child process: ") + std::strerror(errno));
  if (process == 0) become(argv.data(), output, error, parent);

  ProcessResult result;
  int status = 0;
  for (const auto deadline = Clock::now() + limit; waitpid(process, &status, WNOHANG) == 0;) {
    if (!result.timed_out && Clock::now() >= deadline) {
      kill(process, SIGKILL);
      result.timed_out = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  result.output = output.text();
  result.error = error.text();
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return result;
}

}  // namespace flash
