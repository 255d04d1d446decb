#include "common/compare/plan.hpp"
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

void add_all(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

std::vector<std::string> stage_arguments(const Run& run, Backend backend) {
  std::vector<std::string> arguments = run.stage->command;
  const char* device = backend == Backend::gpu ? "gpu" : "cpu";
  add_all(arguments, {"--variant", run.variant->name, "--pass", to_string(run.pass), "--device", device, "--json"});
  add_all(arguments, to_arguments(run.task->options, run.task->sizes));
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

Rows saved_rows(const std::vector<Row>& saved, const Plan& plan) {
  std::map<std::string, const Row*> known_rows;
  for (const Row& row : saved) known_rows[identity(row)] = &row;
  Rows rows(plan.runs.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Json wanted = known_of(plan.runs[i], plan);
    wanted["verdict"] = verdict::ok;
    const auto found = known_rows.find(identity(row_from_json(wanted)));
    if (found != known_rows.end()) rows[i] = *found->second;
  }
  return rows;
}

class Runs {
 public:
  Runs(const CompareOptions& options, const Plan& plan, Rows rows) : options_(options), plan_(plan), rows_(std::move(rows)) {}

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
        if (!options_.save.empty()) append(options_.save, json_line(*rows_[i]));
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
    std::snprintf(seconds, sizeof seconds, ", %.1f s", std::chrono::duration<double>(Clock::now() - start).count());
    std::cerr << seconds;
    if (!row.is_ok()) std::cerr << ", " << row.verdict();
    const std::string message = one_line(row.text("message"));
    std::cerr << (message.empty() ? "" : ": " + message) << std::endl;
    return row;
  }

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
    return make_row(known_of(run, plan_), peers_->ask(question.dump(), options_.time_limit));
  }

  /// Only round 1 checks.
  Row run_stage(const Run& run, std::size_t round) {
    std::vector<std::string> arguments = stage_arguments(run, plan_.backend);
    if (plan_.backend == Backend::gpu) {
      add_all(arguments, {"--bench", "--iterations", std::to_string(options_.iterations)});
    } else {
      arguments.emplace_back("--no-watch");  // a stage by itself, and its tests, look for races; here it is about counts
    }
    if (round > 1) arguments.emplace_back("--no-check");
    return make_row(known_of(run, plan_), run_process(arguments, options_.time_limit));
  }

  const CompareOptions& options_;
  const Plan& plan_;
  Rows rows_;
  std::optional<Conversation> peers_;
  std::size_t done_ = 0;        ///< runs, each round of one counted
  const Case* task_ = nullptr;  ///< of the last run
};

}  // namespace

std::vector<Row> run_all(const CompareOptions& options, const std::filesystem::path& sources) {
  std::vector<Row> saved;
  if (!options.save.empty()) {
    saved = read_rows(options.save);
    append(options.save, "");  // nothing runs in vain
  }
  const Plan plan = make_plan(options, sources);
  std::cerr << "comparing on the " << (plan.backend == Backend::gpu ? "GPU" : "CPU simulator")
            << "; stages are checked against double precision" << std::endl;
  for (const std::string& stage : plan.left_out) std::cerr << "left out: " << stage << std::endl;

  Rows rows(plan.runs.size());
  if (options.resume) {
    rows = saved_rows(saved, plan);
    const auto missing = static_cast<std::size_t>(std::count(rows.begin(), rows.end(), std::nullopt));
    std::cerr << rows.size() - missing << " of " << rows.size() << " runs are saved" << std::endl;
  }
  std::vector<Row> all = Runs(options, plan, std::move(rows)).run_all();
  if (!options.save.empty()) std::cerr << one_line("wrote " + options.save) << std::endl;
  return all;
}

}  // namespace flash
