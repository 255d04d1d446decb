#include "common/compare/history.hpp"

#include "common/attention/cost.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace flash {
namespace {

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

/// How much two runs differ in what decides about their speed: in doublings of the work; a mask or a type weighs as much as four.
double distance(const Run& one, double work, const Run& other, double other_work) {
  const bool mask = one.problem().causal != other.problem().causal, type = one.problem().dtype != other.problem().dtype;
  return std::abs(std::log2(work / other_work)) + (mask ? 2 : 0) + (type ? 2 : 0);
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
  if (seconds && row.verdict == Verdict::ok) measured_.push_back({run, false, work_of(run), *seconds});
  if (row.verdict != Verdict::ok) failed_.push_back({run, row.verdict, row.message});
}

void History::add_counting(const Run& run, double work, double seconds) { measured_.push_back({run, true, work, seconds}); }

std::optional<History::Prediction> History::predict(const Run& run, bool counting, double work, bool own_only) const {
  // Of the variant itself if it ever ran this pass, else of any in this pass, else of any at all; of these the most similar.
  const auto unlike = [&](const Measured& one) {
    const int kind = one.run.pass != run.pass ? 2 : same_variant(one.run, run) ? 0 : 1;
    return std::pair(kind, distance(run, work, one.run, one.work));
  };
  std::pair best{own_only ? 0 : 2, std::numeric_limits<double>::infinity()};
  double start_up = best.second;  // what no run of programs alike has been without: peers are one that is started once
  for (const Measured& one : measured_) {
    if (one.counting != counting) continue;
    best = std::min(best, unlike(one));
    if (one.run.stage->is_peers() == run.stage->is_peers()) start_up = std::min(start_up, one.seconds);
  }
  double sum = 0, longest = 0;
  int count = 0;
  for (const Measured& one : measured_) {
    const auto [kind, distance] = unlike(one);
    if (one.counting != counting || kind != best.first || distance > best.second + 1e-9) continue;
    const double constant = std::min(start_up, one.seconds);
    sum += constant + (one.seconds - constant) * work / one.work;
    longest = std::max(longest, one.seconds);
    ++count;
  }
  return count == 0 ? std::nullopt : std::optional(Prediction{sum / count, longest});
}

std::optional<double> History::seconds(const Run& run) const {
  const auto refused = [&](const Failed& one) {  // which takes no time; the head dimension is what most variants refuse
    return one.verdict == Verdict::refused && same_kind(one.run, run) && one.run.problem().d == run.problem().d;
  };
  if (std::any_of(failed_.begin(), failed_.end(), refused)) return 0;
  const std::optional<Prediction> found = predict(run, false, work_of(run), false);
  return found ? std::optional(found->seconds) : std::nullopt;
}

std::optional<double> History::counting_seconds(const Run& run, double work) const {
  const std::optional<Prediction> found = predict(run, true, work, false);
  return found ? std::optional(found->seconds) : std::nullopt;
}

std::optional<History::Skip> History::reason_to_skip(const Run& run) const {
  const std::string limit = duration_text(limit_);
  for (const Failed& one : failed_) {
    if (!same_kind(one.run, run)) continue;
    const bool no_room = one.verdict == Verdict::no_room, too_long = one.verdict == Verdict::timed_out;
    if (no_room && needs_as_much_memory(run.problem(), one.run.problem())) {
      return Skip{false, "a problem no larger could not run (" + describe(one.run.problem()) + "): " + one.message};
    }
    if (too_long && work_of(run) >= work_of(one.run)) {
      return Skip{true, "a problem no larger took more than the limit of " + limit + " (" + describe(one.run.problem()) + ")"};
    }
  }
  const std::optional<Prediction> own = predict(run, false, work_of(run), true);
  if (!own || own->seconds <= limit_ || own->longest * farthest_skip < limit_) return std::nullopt;
  return Skip{true, "would take about " + duration_text(own->seconds) + "; the limit is " + limit};
}

}  // namespace flash
