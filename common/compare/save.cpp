#include "common/compare/save.hpp"

#include "common/base/error.hpp"
#include "common/base/process.hpp"
#include "common/harness/parse.hpp"
#include "common/harness/pending_file.hpp"
#include "common/harness/problem_json.hpp"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>

namespace flash {
namespace {

namespace fs = std::filesystem;

/// What tells one run's row from those of all others. The problem is as problem_json() says it, since programs differ in the digits
/// of the scale.
std::string key_of(const Row& row) {
  Json problem = problem_json(row.problem);
  for (const char* key : {"input", "seed"}) {
    if (const Json value = row.at(std::string("problem.") + key); !value.is_null()) problem[key] = value;
  }
  return row.label() + " " + to_string(row.pass) + " " + row.place() + " " + problem.dump();
}

std::string key_of(const Run& run, const Plan& plan) {
  Row row = empty_row(run, Verdict::ok, "");
  row.report = {{"device", plan.device}, {"problem", problem_json(*run.task)}};
  return key_of(row);
}

/// Were the tile sizes of a row of --tune timed so often?
bool tiles_timed(const Row& row, int iterations) {
  const Json choices = row.at("tune.choices");
  return std::all_of(choices.begin(), choices.end(), [&](const Json& choice) {
    return !choice.contains("time") || choice["time"].value("iterations", 0) == iterations;
  });
}

/// Would the run, which is the row's, end in the same way?
bool holds(const Row& row, const Run& run, const Plan& plan, const CompareOptions& options) {
  const bool peers = run.stage->is_peers();
  const Json sources = row.at("sources");
  const bool known =
      sources.is_object() && std::none_of(sources.begin(), sources.end(), [](const Json& blob) { return blob.is_null(); });
  if (!peers && (!known || sources != plan.sources.at(run.variant->kernel))) return false;
  for (const auto& [key, value] : run.stage->about.items()) {
    if (row.at(key) != value) return false;
  }
  if (row.is_tuned() != options.tune) return false;
  if (row.verdict == Verdict::refused || row.verdict == Verdict::no_room) return true;
  if (row.verdict != Verdict::ok) return false;
  if (plan.backend == Backend::cpu) return true;
  if (options.tune) return tiles_timed(row, options.iterations);
  const bool counted = row.number("hbm_read_bytes").has_value() || !options.counts || !counted_part(run, plan.backend);
  return row.number("time.iterations") == options.iterations && counted;
}

/// All of them, those of the plan first. Returns how many.
std::size_t write_rows(const std::string& file, const KeptRows& rows) {
  std::vector<Row> all = rows.done();
  all.insert(all.end(), rows.others.begin(), rows.others.end());
  PendingFile pending(file);
  pending.write(json_text(all));
  pending.commit();
  return all.size();
}

}  // namespace

std::vector<Row> read_rows(const std::string& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) {
    throw UsageError(file + (fs::exists(file, error) ? " is not a regular file" : " does not exist") +
                     "; allowed: a file of saved rows");
  }
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (!stream) throw UsageError(file + " cannot be read");
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) throw UsageError(file + " is damaged, or holds no rows; allowed: what compare --save wrote");
  std::vector<Row> rows;
  for (const Json& each : json) {
    try {
      rows.push_back(row_from_json(each));
    } catch (const UsageError& wrong) {
      throw UsageError(file + " holds something else than rows; row " + std::to_string(rows.size() + 1) + ": " + wrong.what());
    }
  }
  return rows;
}

std::vector<Row> KeptRows::done() const {
  std::vector<Row> rows;
  for (const std::optional<Row>& row : of_plan) {
    if (row) rows.push_back(*row);
  }
  return rows;
}

KeptRows rows_that_hold(const std::vector<Row>& earlier, const Plan& plan, const CompareOptions& options) {
  KeptRows kept{std::vector<std::optional<Row>>(plan.runs.size()), {}};
  if (earlier.empty()) return kept;
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < plan.runs.size(); ++i) places[key_of(plan.runs[i], plan)] = i;
  for (const Row& row : earlier) {
    const auto place = places.find(key_of(row));
    if (place == places.end()) {
      kept.others.push_back(row);
    } else if (holds(row, plan.runs[place->second], plan, options)) {
      kept.of_plan[place->second] = row;
    }
  }
  return kept;
}

SaveFile::SaveFile(std::string file, std::string go_on)
    : file_(std::move(file)), partial_(file_ + ".partial"), go_on_(std::move(go_on)) {}

std::vector<Row> SaveFile::start(bool resume) {
  if (file_.empty()) return {};
  {
    const SignalsHeld held;  // or the pending file would stay
    PendingFile{file_};
  }
  std::error_code error;
  const bool interrupted = fs::exists(fs::symlink_status(partial_, error));
  if (interrupted && !resume) {
    throw UsageError(partial_ +
                     " holds the rows of an interrupted run; allowed: --resume to go on with it, or delete it first");
  }
  std::vector<Row> rows;
  try {
    if (fs::exists(file_, error) && (resume || fs::file_size(file_, error) > 0)) rows = read_rows(file_);
  } catch (const UsageError& no_rows) {
    throw UsageError("--save replaces rows alone, and leaves anything else as it is: " + std::string(no_rows.what()));
  }
  if (interrupted) return read_rows(partial_);
  if (resume) return rows;
  replaced_ = std::move(rows);
  return {};
}

void SaveFile::check_replaced(const Plan& plan, bool tune) const {
  const bool peers = std::any_of(plan.stages.begin(), plan.stages.end(), [](const Stage& stage) { return stage.is_peers(); });
  const auto lost = std::find_if(replaced_.begin(), replaced_.end(), [&](const Row& row) {
    return (row.stage == peers_name && !peers) || row.is_tuned() != tune ||
           (row.backend() == Backend::gpu && plan.backend == Backend::cpu);
  });
  if (lost == replaced_.end()) return;
  const std::string whose = lost->stage == peers_name  ? "peers.py"
                            : lost->is_tuned() != tune ? (tune ? "a comparison" : "--tune")
                                                       : lost->text("device.name");
  throw UsageError(file_ + " holds rows of " + whose +
                   ", which this run would replace by its own; allowed: a new name, or --force");
}

void SaveFile::write(const KeptRows& rows, std::size_t done, std::size_t all) const {
  if (file_.empty()) return;
  const SignalsHeld held;
  write_rows(partial_, rows);
  say_on_signal("compare: stopped; " + std::to_string(done) + " of " + std::to_string(all) +
                " runs are saved, the others run with\n  " + go_on_ + "\n");
}

void SaveFile::finish(const KeptRows& rows) const {
  if (file_.empty()) return;
  const SignalsHeld held;
  const std::size_t count = write_rows(file_, rows);
  std::error_code error;
  fs::remove(partial_, error);
  say_on_signal("");
  std::cerr << one_line("wrote " + file_) << ": " << count << (count == 1 ? " row" : " rows") << std::endl;
}

}  // namespace flash
