#include "common/compare/run.hpp"

#include "common/attention/cost.hpp"
#include "common/base/error.hpp"

#include <algorithm>
#include <chrono>

namespace flash {
namespace {

using Clock = std::chrono::steady_clock;

void append(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

std::vector<std::string> stage_arguments(const Run& run, const Case& task, Backend backend) {
  std::vector<std::string> arguments = run.stage->command;
  const char* device = backend == Backend::gpu ? "gpu" : "cpu";
  append(arguments, {"--variant", run.variant->name, "--pass", to_string(run.pass), "--device", device, "--json"});
  append(arguments, to_arguments(task.options, task.sizes));
  return arguments;
}

/// The row that peers.py answered, with the verdict that it gave.
Row peer_row(const Run& run, const ProcessResult& answer) {
  Row row = make_row(run, answer);
  if (row.verdict != Verdict::ok) return row;
  try {
    const Row said = row_from_json(row.report);
    row.verdict = said.verdict;
    row.message = said.message;
  } catch (const UsageError& wrong) {
    row.verdict = Verdict::crashed;
    row.message = std::string("no row: ") + wrong.what();
  }
  return row;
}

/// The medians of all rounds so far.
std::vector<double> rounds_of(const Json& report) {
  const Json& time = report.at("time");
  return time.contains("rounds_ms") ? time.at("rounds_ms").get<std::vector<double>>()
                                    : std::vector<double>{time.at("median_ms").get<double>()};
}

/// Adds the times of one more round, of which each counts alike: the median is that of the rounds' medians.
void add_round(Json& report, const Json& again) {
  std::vector<double> medians = rounds_of(report);
  medians.push_back(again.at("time").at("median_ms").get<double>());
  Json& time = report.at("time");
  time["rounds_ms"] = medians;
  std::sort(medians.begin(), medians.end());
  const double before = time.at("median_ms").get<double>();
  const double median = (medians[(medians.size() - 1) / 2] + medians[medians.size() / 2]) / 2;
  time["median_ms"] = median;
  time["min_ms"] = std::min(time.value("min_ms", median), again.at("time").value("min_ms", median));
  time["max_ms"] = std::max(time.value("max_ms", median), again.at("time").value("max_ms", median));
  for (const char* rate : {"tflops", "percent_of_peak"}) {
    if (report.contains(rate) && report[rate].is_number()) report[rate] = report[rate].get<double>() * before / median;
  }
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Runs one after the other, with what is known about all of them.
class Runs {
 public:
  Runs(const CompareOptions& options, const Plan& plan, KeptRows kept, const SaveFile& save, Progress& progress)
      : options_(options), plan_(plan), rows_(std::move(kept)), save_(save), progress_(progress), history_(options.time_limit) {
    for (std::size_t i = 0; i < plan.runs.size(); ++i) {
      if (!rows_.of_plan[i]) continue;
      history_.add(plan.runs[i], *rows_.of_plan[i]);
      done_ += rounds_done(*rows_.of_plan[i]);
    }
  }

  void run_all() {
    for (std::size_t round = 1; round <= options_.rounds; ++round) {
      for (std::size_t i = 0; i < plan_.runs.size(); ++i) {
        if (!rows_.of_plan[i] || rounds_done(*rows_.of_plan[i]) < round) run_in(round, i);
      }
    }
    peers_.reset();
    progress_.clear();
  }

  /// One line: how many were skipped and why; or nothing.
  std::string summary() const {
    std::string why;
    const auto add = [&](std::size_t count, const std::string& reason) {
      if (count > 0) why += (why.empty() ? "" : ", ") + std::to_string(count) + " since " + reason;
    };
    add(no_room_, "a problem no larger could not run");
    add(too_long_, "they would take longer than " + duration_text(history_.limit()));
    const std::string which = std::to_string(no_room_ + too_long_) + " of " + std::to_string(plan_.runs.size());
    return why.empty() ? "" : "skipped " + which + " runs: " + why + "\n";
  }

  KeptRows rows() const { return rows_; }

 private:
  /// All of them if the row has no time of which another round could make a median.
  std::size_t rounds_done(const Row& row) const {
    const bool timed = row.verdict == Verdict::ok && row.number("time.median_ms").has_value();
    return timed ? rounds_of(row.report).size() : options_.rounds;
  }

  void run_in(std::size_t round, std::size_t i) {
    const Run& run = plan_.runs[i];
    const std::optional<History::Skip> skip = round == 1 ? history_.reason_to_skip(run) : std::nullopt;
    progress_.start(run, done_, seconds_left(round, i));
    if (skip) ++(skip->too_long ? too_long_ : no_room_);
    Row row = skip ? empty_row(run, Verdict::skipped, skip->message) : run_one(run, round);
    if (round > 1 && row.verdict == Verdict::ok) {
      Row earlier = *rows_.of_plan[i];
      add_round(earlier.report, row.report);
      row = std::move(earlier);
    }
    complete(row, run);
    progress_.end(row);
    rows_.of_plan[i] = std::move(row);
    done_ += rounds_done(*rows_.of_plan[i]) - (round - 1);
    save_.write(rows_, done_, plan_.runs.size() * options_.rounds);
  }

  Row run_peer(const Run& run) {
    if (!peers_) peers_.emplace(run.stage->command);
    if (!peers_->runs()) {  // loading torch is no part of the run
      const ProcessResult ready = peers_->ask(R"({"list": true})", torch_loads_in, tick_);
      if (!peers_->runs()) return make_row(run, ready);
    }
    const Json question{{"variant", run.variant->name},
                        {"pass", to_string(run.pass)},
                        {"iterations", options_.iterations},
                        {"problem", problem_json(*run.task)}};
    const Clock::time_point start = Clock::now();
    Row row = peer_row(run, peers_->ask(question.dump(), options_.time_limit, tick_));
    row.report["wall_s"] = seconds_since(start);
    history_.add(run, row);
    return row;
  }

  /// What was checked and counted in round 1 is not again.
  Row run_one(const Run& run, std::size_t round) {
    if (run.stage->is_peers()) return run_peer(run);
    std::vector<std::string> arguments = stage_arguments(run, *run.task, plan_.backend);
    if (options_.tune) arguments.emplace_back("--tune");
    if (plan_.backend == Backend::gpu) {
      if (!options_.tune) arguments.emplace_back("--bench");
      append(arguments, {"--iterations", std::to_string(options_.iterations)});
    } else {
      arguments.emplace_back("--no-watch");  // a stage by itself, and its tests, look for races; here it is about counts
    }
    if (round > 1) arguments.emplace_back("--no-check");
    const Clock::time_point start = Clock::now();
    Row row = make_row(run, run_process(arguments, options_.time_limit, tick_));
    row.report["wall_s"] = seconds_since(start);  // of the whole program: what --resume and --time-limit go by
    history_.add(run, row);
    if (row.verdict == Verdict::ok && !options_.tune && round == 1) count_traffic(row, run);
    return row;
  }

  /// Adds hbm_read_bytes and hbm_written_bytes to the report.
  void count_traffic(Row& row, const Run& run) {
    double groups = 1;
    Row counted = row;
    if (plan_.backend == Backend::gpu) {
      const std::optional<Case> part = counted_part(run, plan_.backend);
      if (!part || !options_.counts) return;
      std::vector<std::string> arguments = stage_arguments(run, *part, Backend::cpu);
      if (const std::optional<std::string> tiles = row.tiles()) append(arguments, {"--tiles", *tiles});  // what the GPU ran
      arguments.emplace_back("--no-check");
      const Clock::time_point start = Clock::now();
      counted.report = Json::parse(run_process(arguments, options_.time_limit, tick_).output, nullptr, false);
      history_.add_counting(run, flops(part->problem, run.pass), seconds_since(start));
      groups = static_cast<double>(run.problem().B) * run.problem().Hkv;
    }
    for (const char* direction : {"read_bytes", "written_bytes"}) {
      const std::optional<double> bytes = counted.number(std::string("counters.") + direction);
      if (bytes) row.report[std::string("hbm_") + direction] = static_cast<std::uint64_t>(*bytes * groups);
    }
  }

  /// What every row says, whether its program could say it or not.
  void complete(Row& row, const Run& run) const {
    Json& report = row.report;
    const auto add = [&](const char* key, const Json& value) {
      if (!report.contains(key)) report[key] = value;
    };
    for (const auto& [key, value] : run.stage->about.items()) add(key.c_str(), value);
    if (!run.variant->kernel.empty()) add("kernel", run.variant->kernel);
    if (options_.tune) add("tune", Json::object());
    add("device", plan_.device);
    add("problem", problem_json(*run.task));
    report["stage"] = row.stage;
    report["variant"] = row.variant;
    report["pass"] = to_string(row.pass);
    report["idea"] = run.variant->idea;
    report["verdict"] = to_string(row.verdict);
    if (!row.message.empty()) report["message"] = row.message;
    report.update(plan_.when);
    if (!run.stage->is_peers()) report["sources"] = plan_.sources.at(run.variant->kernel);
  }

  /// For the runs from `first` of the round on; absent as long as nothing has run.
  std::optional<double> seconds_left(std::size_t round, std::size_t first) const {
    double sum = 0;
    for (std::size_t i = 0; i < plan_.runs.size(); ++i) {
      const Run& run = plan_.runs[i];
      const bool this_round = i >= first && (round > 1 || !rows_.of_plan[i]);
      const std::size_t rounds = options_.rounds - round + (this_round ? 1 : 0);
      if (rounds == 0 || history_.reason_to_skip(run)) continue;
      const std::optional<double> seconds = history_.seconds(run);
      if (!seconds) return std::nullopt;
      sum += static_cast<double>(rounds) * std::min(*seconds, history_.limit());
      if (rows_.of_plan[i]) continue;
      const std::optional<Case> part = options_.counts && !options_.tune ? counted_part(run, plan_.backend) : std::nullopt;
      if (part) sum += history_.counting_seconds(run, flops(part->problem, run.pass)).value_or(0);
    }
    return sum;
  }

  const CompareOptions& options_;
  const Plan& plan_;
  KeptRows rows_;
  const SaveFile& save_;
  Progress& progress_;
  const std::function<void()> tick_ = [this] { progress_.tick(); };
  History history_;
  std::optional<Conversation> peers_;
  std::size_t done_ = 0, no_room_ = 0, too_long_ = 0;
};

}  // namespace

KeptRows run_plan(const CompareOptions& options, const Plan& plan, KeptRows kept, const SaveFile& save, Progress& progress,
                  std::ostream& log) {
  Runs runs(options, plan, std::move(kept), save, progress);
  runs.run_all();
  log << runs.summary() << std::flush;
  return runs.rows();
}

}  // namespace flash
