#include "common/compare/run.hpp"

#include "common/attention/cost.hpp"
#include "common/compare/plan.hpp"
#include "common/compare/progress.hpp"
#include "common/compare/save.hpp"

#include <algorithm>
#include <chrono>
#include <iostream>

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

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Runs one after the other, with what is known about all of them.
class Runs {
 public:
  Runs(const CompareOptions& options, const Plan& plan, const SaveFile& save, KeptRows kept, Progress::Look look)
      : options_(options),
        plan_(plan),
        save_(save),
        rows_(std::move(kept)),
        all_(plan.runs.size() * options.rounds),
        progress_(std::cerr, look, all_, terminal_columns),
        history_(options.time_limit) {
    for (std::size_t i = 0; i < plan.runs.size(); ++i) {
      if (!rows_.of_plan[i]) continue;
      history_.add(plan.runs[i], *rows_.of_plan[i]);
      done_ += rounds_done(*rows_.of_plan[i]);
    }
  }

  KeptRows run_all() {
    for (std::size_t round = 1; round <= options_.rounds; ++round) {
      for (std::size_t i = 0; i < plan_.runs.size(); ++i) {
        if (!rows_.of_plan[i] || rounds_done(*rows_.of_plan[i]) < round) run_in(round, i);
      }
    }
    peers_.reset();
    progress_.clear();
    std::cerr << summary() << std::flush;
    return rows_;
  }

 private:
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
    save_.write(rows_, done_, all_);
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
  const SaveFile& save_;
  KeptRows rows_;
  std::size_t all_;  ///< each round of a run counted
  Progress progress_;
  const std::function<void()> tick_ = [this] { progress_.tick(); };
  History history_;
  std::optional<Conversation> peers_;
  std::size_t done_ = 0, no_room_ = 0, too_long_ = 0;
};

}  // namespace

std::vector<Row> run_all(const CompareOptions& options, const std::filesystem::path& sources, const std::string& command) {
  SaveFile save(options.save, options.resume ? command : command + " --resume");
  const std::vector<Row> earlier = save.start(options.resume);
  const Plan plan = make_plan(options, sources);
  if (!options.force) save.check_replaced(plan, options.tune);
  const bool sweep = plan.cases.size() > 1;
  const std::size_t stages = plan.stages.size() - (options.peers ? 1 : 0);
  std::cerr << "comparing ";
  if (stages > 0) std::cerr << stages << (stages == 1 ? " stage" : " stages");
  if (options.peers) std::cerr << (stages > 0 ? " and " : "") << "torch " << plan.stages.back().about.value("torch", "");
  std::cerr << " on the " << (plan.backend == Backend::gpu ? "GPU" : "CPU simulator");
  if (stages > 0) std::cerr << (options.peers ? ", each stage" : ", each") << " checked against double precision";
  if (sweep) std::cerr << ": " << plan.runs.size() << " runs over " << plan.cases.size() << " problems";
  std::cerr << std::endl << left_out(plan);

  KeptRows kept = rows_that_hold(earlier, plan, options);
  if (options.resume) {
    std::cerr << kept.done().size() << " of " << plan.runs.size() << " runs are saved and still hold" << std::endl;
  }
  const auto look = !sweep ? Progress::Look::plain : terminal_columns() > 0 ? Progress::Look::live : Progress::Look::lines;
  kept = Runs(options, plan, save, std::move(kept), look).run_all();
  save.finish(kept);
  return kept.done();
}

}  // namespace flash
