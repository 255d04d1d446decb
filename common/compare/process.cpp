#include "common/compare/process.hpp"

#include "common/compare/child.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstring>

namespace flash {
namespace {

using Clock = ProcessClock;

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

ProcessResult run_process(const std::vector<std::string>& arguments, std::chrono::milliseconds limit,
                          const std::function<void()>& meanwhile) {
  ProcessResult result;
  Pipe output, error;
  pid_t child = 0;
  if (const int failure = spawn(child, arguments, -1, output, error); failure != 0) {
    result.error = std::strerror(failure);
    return result;
  }
  result.started = true;
  output.close_write_end();
  error.close_write_end();
  Streams streams{{{output.read_end, POLLIN, 0}, {error.read_end, POLLIN, 0}}};
  const Clock::time_point deadline = Clock::now() + limit;
  listen(streams, result, deadline, meanwhile, [] { return false; });
  note_end(child, result, deadline);
  return result;
}

struct Conversation::Program {
  Pipe input, output, error;
  pid_t child = 0;
  Streams streams{};

  /// 0 or the reason why not.
  int start(const std::vector<std::string>& arguments) {
    const int failure = spawn(child, arguments, input.read_end, output, error);
    input.close_read_end();
    output.close_write_end();
    error.close_write_end();
    streams = {{{output.read_end, POLLIN, 0}, {error.read_end, POLLIN, 0}}};
    return failure;
  }

  /// A program that has ended does not read it, which its silence tells too.
  void send(const std::string& line) const {
    struct sigaction ignore {
    }, before{};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &ignore, &before);
    [[maybe_unused]] const ssize_t sent = ::write(input.write_end, line.data(), line.size());
    sigaction(SIGPIPE, &before, nullptr);
  }
};

Conversation::Conversation(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}

Conversation::~Conversation() {
  if (!program_) return;
  ProcessResult end;
  note_end(program_->child, end, Clock::now());
}

ProcessResult Conversation::ask(const std::string& question, std::chrono::milliseconds limit,
                                const std::function<void()>& meanwhile) {
  const Clock::time_point deadline = Clock::now() + limit;
  ProcessResult result;
  if (!program_) {
    auto program = std::make_unique<Program>();
    if (const int failure = program->start(arguments_); failure != 0) {
      result.error = std::strerror(failure);
      return result;
    }
    program_ = std::move(program);
  }
  result.started = true;
  program_->send(question + "\n");
  const auto answered = [&] { return result.output.ends_with('\n'); };
  listen(program_->streams, result, deadline, meanwhile, answered);
  if (answered()) return result;
  note_end(program_->child, result, deadline);
  program_.reset();
  return result;
}

}  // namespace flash
