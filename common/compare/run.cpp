#include "common/compare/run.hpp"

#include "common/attention/cost.hpp"
#include "common/compare/plan.hpp"
#include "common/compare/rows_file.hpp"
#include "common/harness/parse.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>

namespace flash {
namespace {

using Clock = std::chrono::steady_clock;
using Rows = std::vector<std::optional<Row>>;  // of the runs of a plan

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

/// The fields of a row whatever the program does.
Json known_of(const Run& run, const Plan& plan) {
  Json json{{"stage", run.stage->name},      {"variant", run.variant->name}, {"pass", to_string(run.pass)},
            {"idea", run.variant->idea},     {"device", plan.device},        {"problem", problem_json(*run.task)},
            {"commit", plan.when["commit"]}, {"date", plan.when["date"]}};
  if (run.stage->about.is_object()) json.update(run.stage->about);
  if (run.stage->is_peers()) return json;
  json["kernel"] = run.variant->kernel;
  json["sources"] = plan.sources.at(run.variant->kernel);
  return json;
}

/// Identifies a row for --resume: the run, the code, and the version of torch.
std::string identity(const Row& row) {
  std::string text = row.key();
  for (const char* field : {"sources", "torch", "cudnn"}) text += " " + row.at(field).dump();
  return text;
}

Rows saved_rows(const std::vector<Row>& saved, const Plan& plan, const CompareOptions& options) {
  std::map<std::string, const Row*> known_rows;
  for (const Row& row : saved) known_rows[identity(row)] = &row;
  Rows rows(plan.runs.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Json wanted = known_of(plan.runs[i], plan);
    wanted["verdict"] = verdict::ok;
    if (options.tune) wanted["tune"] = Json::object();
    const auto found = known_rows.find(identity(row_from_json(wanted)));
    if (found != known_rows.end()) rows[i] = *found->second;
  }
  return rows;
}

class Runs {
 public:
  Runs(const CompareOptions& options, const Plan& plan, Rows rows, RowsFile* file)
      : options_(options), plan_(plan), rows_(std::move(rows)), file_(file) {}

  std::vector<Row> run_all() {
    for (std::size_t first = 0, end = 0; first < plan_.runs.size(); first = end) {
      const auto same_problem = [&](const Run& run) {
        return run.task == plan_.runs[first].task && run.pass == plan_.runs[first].pass;
      };
      while (end < plan_.runs.size() && same_problem(plan_.runs[end])) ++end;
      run_in_turns(first, end);
    }
    std::vector<Row> all;
    for (std::optional<Row>& row : rows_) all.push_back(std::move(*row));
    return all;
  }

 private:
  /// Runs `first` to `end`, round by round. A row ends with its last round, or with the first that has no time.
  void run_in_turns(std::size_t first, std::size_t end) {
    std::vector<std::size_t> open;
    for (std::size_t i = first; i < end; ++i) {
      if (!rows_[i])
        open.push_back(i);
      else
        done_ += options_.rounds;
    }
    for (std::size_t round = 1; round <= options_.rounds; ++round) {
      std::erase_if(open, [&](std::size_t i) {
        Row row = run_one(plan_.runs[i], round);
        ++done_;
        if (round > 1 && row.rounds() > 0) {
          rows_[i]->add_round(row);
        } else {
          rows_[i] = std::move(row);
        }
        if (round < options_.rounds && rows_[i]->rounds() > 0) return false;
        if (file_ != nullptr) file_->append(*rows_[i]);
        done_ += options_.rounds - round;
        return true;
      });
    }
  }

  Row run_one(const Run& run, std::size_t round) {
    if (plan_.cases.size() > 1 && task_ != run.task) std::cerr << describe(run.problem()) << '\n';
    task_ = run.task;
    std::cerr << "[" << done_ + 1 << "/" << plan_.runs.size() * options_.rounds << "] " << to_string(run.pass) << " "
              << run.label() << std::flush;
    const Clock::time_point start = Clock::now();
    Row row = run.stage->is_peers() ? run_peer(run) : run_stage(run, round);
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, ", %.1f s", seconds_since(start));
    std::cerr << seconds;
    if (!row.is_ok()) std::cerr << ", " << row.verdict();
    const std::string message = one_line(row.text("message"));
    std::cerr << (message.empty() ? "" : ": " + message) << std::endl;
    return row;
  }

  static double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

  Row run_peer(const Run& run) {
    if (!peers_) peers_.emplace(run.stage->command);
    if (!peers_->runs()) {  // loading torch is no part of the run
      const ProcessResult ready = peers_->ask(R"({"list": true})", torch_loads_in);
      if (!peers_->runs()) return make_row(known_of(run, plan_), ready);
    }
    const Json question{{"variant", run.variant->name},
                        {"pass", to_string(run.pass)},
                        {"iterations", options_.iterations},
                        {"problem", problem_json(*run.task)}};
    const Clock::time_point start = Clock::now();
    Row row = make_row(known_of(run, plan_), peers_->ask(question.dump(), options_.time_limit));
    row.json["wall_s"] = seconds_since(start);
    return row;
  }

  /// Only round 1 checks and counts.
  Row run_stage(const Run& run, std::size_t round) {
    std::vector<std::string> arguments = stage_arguments(run, *run.task, plan_.backend);
    if (options_.tune) arguments.emplace_back("--tune");
    if (plan_.backend == Backend::gpu) {
      if (!options_.tune) arguments.emplace_back("--bench");
      append(arguments, {"--iterations", std::to_string(options_.iterations)});
    } else {
      arguments.emplace_back("--no-watch");  // a stage by itself, and its tests, look for races; here it is about counts
    }
    if (round > 1) arguments.emplace_back("--no-check");
    Json known = known_of(run, plan_);
    if (options_.tune) known["tune"] = Json::object();
    const Clock::time_point start = Clock::now();
    Row row = make_row(known, run_process(arguments, options_.time_limit));
    row.json["wall_s"] = seconds_since(start);
    if (row.is_ok() && !options_.tune && round == 1) count_traffic(row, run);
    return row;
  }

  /// hbm_read_bytes and hbm_written_bytes; of a run on a GPU by the simulator, from a part of the problem.
  void count_traffic(Row& row, const Run& run) {
    std::int64_t groups = 1;
    Json counters = row.at("counters");
    if (plan_.backend == Backend::gpu) {
      const std::optional<Case> part = counted_part(run, plan_.backend);
      if (!part || !options_.counts) return;
      std::vector<std::string> arguments = stage_arguments(run, *part, Backend::cpu);
      if (const std::optional<std::string> tiles = row.tiles_text()) append(arguments, {"--tiles", *tiles});  // the GPU's
      arguments.emplace_back("--no-check");
      const ProcessResult result = run_process(arguments, options_.time_limit);
      const Json report = Json::parse(result.output, nullptr, /*allow_exceptions=*/false);
      counters = report.is_object() ? report.value("counters", Json()) : Json();
      groups = run.problem().B * run.problem().Hkv;
    }
    if (!counters.is_object()) return;
    row.json["hbm_read_bytes"] = counters.value("read_bytes", std::int64_t{0}) * groups;
    row.json["hbm_written_bytes"] = counters.value("written_bytes", std::int64_t{0}) * groups;
  }

  const CompareOptions& options_;
  const Plan& plan_;
  Rows rows_;
  RowsFile* file_;  ///< null: nothing is saved
  std::optional<Conversation> peers_;
  std::size_t done_ = 0;        ///< runs, each round of one counted
  const Case* task_ = nullptr;  ///< of the last run
};

}  // namespace

std::vector<Row> run_all(const CompareOptions& options, const std::filesystem::path& sources) {
  std::optional<RowsFile> file;
  if (!options.save.empty()) file.emplace(options.save);
  const Plan plan = make_plan(options, sources);
  const std::size_t stages = plan.stages.size() - (options.peers ? 1 : 0);
  std::cerr << "comparing ";
  if (stages > 0) std::cerr << stages << (stages == 1 ? " stage" : " stages");
  if (options.peers) std::cerr << (stages > 0 ? " and " : "") << "torch " << plan.stages.back().about.value("torch", "");
  std::cerr << " on the " << (plan.backend == Backend::gpu ? "GPU" : "CPU simulator");
  if (stages > 0) std::cerr << (options.peers ? ", each stage" : ", each") << " checked against double precision";
  std::cerr << std::endl << left_out(plan);

  Rows rows(plan.runs.size());
  if (options.resume) {
    rows = saved_rows(file->rows(), plan, options);
    const auto missing = static_cast<std::size_t>(std::count(rows.begin(), rows.end(), std::nullopt));
    std::cerr << rows.size() - missing << " of " << rows.size() << " runs are saved" << std::endl;
  }
  std::vector<Row> all = Runs(options, plan, std::move(rows), file ? &*file : nullptr).run_all();
  if (file) std::cerr << one_line("wrote " + options.save) << std::endl;
  return all;
}

}  // namespace flash
