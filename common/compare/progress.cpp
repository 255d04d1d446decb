#include "common/compare/progress.hpp"

#include "common/compare/history.hpp"
#include "common/harness/console.hpp"
#include "common/harness/parse.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace flash {
namespace {

constexpr const char* erase_line = "\r\x1b[K";

std::string bar(std::size_t done, std::size_t runs) {
  constexpr std::size_t width = 20;
  const std::size_t full = width * done / std::max<std::size_t>(1, runs);
  return "[" + std::string(full, '#') + std::string(width - full, '-') + "]";
}

std::string what(const Run& run) { return std::string(to_string(run.pass)) + " " + run.label(); }

}  // namespace

int terminal_columns() {
  const char* terminal = std::getenv("TERM");
  if (terminal == nullptr || std::string(terminal) == "dumb") return 0;
  return static_cast<int>(columns_of(STDERR_FILENO));
}

std::string Progress::left() const {
  if (!seconds_left_) return "";
  const double passed = std::chrono::duration<double>(Clock::now() - started_).count();
  return ", about " + duration_text(std::max(1.0, *seconds_left_ - passed)) + " left";
}

void Progress::draw() {
  drawn_ = Clock::now();
  std::string line = bar(done_, runs_) + " " + std::to_string(done_ + 1) + " of " + std::to_string(runs_) + left() + ": " +
                     what(*run_) + ", " + describe(run_->problem());
  // A line that fills the terminal would wrap, and could not be taken back.
  line.resize(std::min(line.size(), static_cast<std::size_t>(std::max(columns_(), 2) - 1)));
  out_ << erase_line << line << std::flush;
}

void Progress::start(const Run& run, std::size_t done, std::optional<double> seconds_left) {
  run_ = &run;
  done_ = done;
  seconds_left_ = seconds_left;
  started_ = Clock::now();
  if (look_ == Look::live) return draw();
  if (look_ == Look::lines) {
    if (task_ != run.task) out_ << describe(run.problem()) << std::endl;
    task_ = run.task;
    out_ << "[" << done + 1 << "/" << runs_ << left() << "] ";
  }
  out_ << what(run) << " ... " << std::flush;
}

void Progress::tick() {
  if (look_ == Look::live && Clock::now() - drawn_ >= std::chrono::seconds(1)) draw();
}

void Progress::end(const Row& row) {
  const std::string message = look_ == Look::plain ? row.message : one_line(row.message);
  const std::string verdict = to_string(row.verdict) + (message.empty() ? "" : ": " + message);
  if (look_ != Look::live) {
    out_ << verdict << std::endl;
  } else if (row.verdict != Verdict::ok) {
    out_ << erase_line << what(*run_) << ", " << describe(run_->problem()) << ": " << verdict << std::endl;
  }
}

void Progress::clear() {
  if (look_ == Look::live) out_ << erase_line << std::flush;
}

}  // namespace flash
