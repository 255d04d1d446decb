#include "common/compare/progress.hpp"

#include "common/attention/cost.hpp"
#include "common/harness/console.hpp"
#include "common/harness/parse.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace flash {
namespace {

constexpr const char* erase_line = "\r\x1b[K";

std::string bar(std::size_t done, std::size_t runs) {
  constexpr std::size_t width = 20;
  const std::size_t full = width * done / std::max<std::size_t>(1, runs);
  return "[" + std::string(full, '#') + std::string(width - full, '-') + "]";
}

std::string what(const Run& run) { return std::string(to_string(run.pass)) + " " + run.label(); }

/// A run that took less than this part of the time limit says too little about one that would exceed it: start-up, checks and
/// caches do not grow with the FLOPs.
constexpr double farthest_skip = 16;

double work_of(const Run& run) { return flops(run.problem(), run.pass); }

/// Elements of the tensors of one problem. A problem with more of each needs more memory, whatever the variant keeps.
std::array<double, 4> elements(const Problem& p) {
  const double rows = 1.0 * p.B * p.H * p.Nq;
  return {rows, rows * p.d, rows * p.Nk, 1.0 * p.B * p.Hkv * p.Nk * p.d};
}

bool needs_as_much_memory(const Problem& one, const Problem& other) {
  const std::array<double, 4> a = elements(one), b = elements(other);
  return std::equal(a.begin(), a.end(), b.begin(), std::greater_equal<>());
}

bool same_variant(const Run& one, const Run& other) { return one.stage == other.stage && one.variant == other.variant; }

bool same_kind(const Run& one, const Run& other) {
  return same_variant(one, other) && one.pass == other.pass && one.problem().dtype == other.problem().dtype;
}

}  // namespace

std::string duration_text(double seconds) {
  char text[32];
  if (seconds < 119.5) {
    std::snprintf(text, sizeof text, "%.0f s", seconds);
  } else if (seconds < 119.5 * 60) {
    std::snprintf(text, sizeof text, "%.0f min", seconds / 60);
  } else {
    std::snprintf(text, sizeof text, "%.1f h", seconds / 3600);
  }
  return text;
}

void History::add(const Run& run, const Row& row) {
  const std::optional<double> seconds = row.number("wall_s");
  if (seconds && row.verdict == Verdict::ok) runs_.push_back({run, work_of(run), *seconds});
  if (row.verdict != Verdict::ok) failed_.emplace_back(run, row);
}

std::optional<double> History::predict(const std::vector<Measured>& measured, const Run& run, double work) const {
  // Of the variant itself if it ever ran this pass, else of any in this pass, else of any at all; of these the most similar: in doublings
  // of the work, of which a type weighs as much as two, since a FLOP of another type takes another time.
  const auto unlike = [&](const Measured& one) {
    const int kind = one.run.pass != run.pass ? 2 : same_variant(one.run, run) ? 0 : 1;
    const bool same_type = one.run.problem().dtype == run.problem().dtype;
    return std::pair(kind, std::abs(std::log2(work / one.work)) + (same_type ? 0 : 2));
  };
  std::pair best{2, std::numeric_limits<double>::infinity()};
  double start_up = best.second;  // what no run of programs alike has been without: peers are one that is started once
  for (const Measured& one : measured) {
    best = std::min(best, unlike(one));
    if (one.run.stage->is_peers() == run.stage->is_peers()) start_up = std::min(start_up, one.seconds);
  }
  double sum = 0;
  int count = 0;
  for (const Measured& one : measured) {
    const auto [kind, distance] = unlike(one);
    if (kind != best.first || distance > best.second + 1e-9) continue;
    const double constant = std::min(start_up, one.seconds);
    sum += constant + (one.seconds - constant) * work / one.work;
    ++count;
  }
  return count == 0 ? std::nullopt : std::optional(sum / count);
}

std::optional<double> History::seconds(const Run& run) const {
  const auto refused = [&](const auto& failed) {  // which takes no time; the head dimension is what most variants refuse
    const auto& [one, row] = failed;
    return row.verdict == Verdict::refused && same_kind(one, run) && one.problem().d == run.problem().d;
  };
  if (std::any_of(failed_.begin(), failed_.end(), refused)) return 0;
  return predict(runs_, run, work_of(run));
}

std::optional<History::Skip> History::reason_to_skip(const Run& run) const {
  for (const auto& [one, row] : failed_) {
    if (!same_kind(one, run)) continue;
    const std::string which = "(" + describe(one.problem()) + ")";
    if (row.verdict == Verdict::no_room && needs_as_much_memory(run.problem(), one.problem())) {
      return Skip{false, "a problem no larger could not run " + which + ": " + row.message};
    }
    if (row.verdict == Verdict::timed_out && work_of(run) >= work_of(one)) {
      return Skip{true, "a problem no larger took more than the limit of " + duration_text(limit_) + " " + which};
    }
  }
  const auto tells = [&](const Measured& one) {
    return same_variant(one.run, run) && one.run.pass == run.pass && one.seconds * farthest_skip >= limit_;
  };
  const std::optional<double> expected = predict(runs_, run, work_of(run));
  if (std::none_of(runs_.begin(), runs_.end(), tells) || *expected <= limit_) return std::nullopt;
  return Skip{true, "would take about " + duration_text(*expected) + "; the limit is " + duration_text(limit_)};
}

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
                     what(run_) + ", " + describe(run_.problem());
  // A line that fills the terminal would wrap, and could not be taken back.
  line.resize(std::min(line.size(), static_cast<std::size_t>(std::max(columns_(), 2) - 1)));
  out_ << erase_line << line << std::flush;
}

void Progress::start(const Run& run, std::size_t done, std::optional<double> seconds_left) {
  run_ = run;
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
    out_ << erase_line << what(run_) << ", " << describe(run_.problem()) << ": " << verdict << std::endl;
  }
}

void Progress::clear() {
  if (look_ == Look::live) out_ << erase_line << std::flush;
}

}  // namespace flash
