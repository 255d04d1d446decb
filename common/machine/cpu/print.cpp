// What kernels print.
#include "common/machine/cpu/options.hpp"
#include "common/machine/cpu/thread.hpp"
#include "common/machine/engine/messages.hpp"
#include "common/machine/engine/sanitizer.hpp"
#include "common/machine/engine/worker.hpp"

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <string>

namespace flash {
namespace {

std::FILE* target = stdout;

}  // namespace

inline namespace simt {

PrintsTo::PrintsTo(std::FILE* file) : before_(target) { target = file; }
PrintsTo::~PrintsTo() { target = before_; }

int print_line(const char* pattern, ...) {
  constexpr int most_lines = 1000;  // of all launches; a kernel may have a million threads
  static std::mutex mutex;
  static std::string open_line;  // whose line has not ended yet
  static int lines = 0;

  const machine::Worker* const worker = machine::Worker::running();
  const machine::sanitizer::Unwatched unwatched;
  std::va_list values;
  va_start(values, pattern);
  char text[1024];
  const int length = worker == nullptr ? std::vprintf(pattern, values) : std::vsnprintf(text, sizeof text, pattern, values);
  va_end(values);
  if (worker == nullptr) return length;
  if (target == nullptr) return length;

  const std::lock_guard lock(mutex);
  const std::string who = "block " + machine::words(blockIdx) + ", thread " + machine::words(threadIdx) + ": ";
  std::string shown;
  for (const char* at = text; *at != '\0' && lines < most_lines; ++at) {
    if (open_line != who) shown += (open_line.empty() ? "" : "\n") + who;
    open_line = who;
    shown += *at;
    if (*at != '\n') continue;
    open_line.clear();
    if (++lines == most_lines) shown += "(what kernels print after " + std::to_string(most_lines) + " lines is not shown)\n";
  }
  std::fputs(shown.c_str(), target);
  return length;
}

}  // namespace simt
}  // namespace flash
