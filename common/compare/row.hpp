// One row of the comparison: one variant, one pass, one problem. A file of rows has a JSON object per line.
#pragma once

#include "common/attention/variant.hpp"
#include "common/base/process.hpp"
#include "common/compare/sweep.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace flash {

using Json = nlohmann::ordered_json;

enum class Verdict {
  ok,
  wrong,    ///< the check failed
  stopped,  ///< the simulator stopped the kernel
  crashed,  ///< ended by a signal, or without a report
  timed_out,
  refused,  ///< the variant does not take this problem; not a failure
  no_room,  ///< not enough memory, or no device; not a failure
  skipped,  ///< never started; in old rows alone
};

const char* to_string(Verdict);

/// An absent value is empty, or null.
struct Row {
  std::string stage, variant;
  Pass pass = Pass::forward;
  std::string idea, kernel;
  Json device, problem;
  std::optional<double> flops, compulsory_bytes;
  std::optional<std::int64_t> extra_memory_bytes;
  Json tiles, check, threads, time;
  std::optional<double> tflops, percent_of_peak;
  Json predicted, counters;
  std::vector<Json> remarks;
  Json tune;                     ///< of --tune
  std::optional<double> wall_s;  ///< of the whole program
  std::optional<std::int64_t> hbm_read_bytes, hbm_written_bytes;
  Verdict verdict = Verdict::ok;
  std::string message;  ///< why the verdict is not ok
  std::string commit, date, torch, cudnn;
  Json sources;               ///< code_hash() of each kernel file
  std::vector<Json> profile;  ///< from profile_gpu.py
  Json counters_of_a_head;
  Json sustained;  ///< from power_gpu.py

  /// The schema: calls visit(name, member) for each field, in the order of the JSON object. rows.py has the same fields.
  template <class AnyRow, class Visit>
  static void each_field(AnyRow& row, Visit&& visit) {
    visit("stage", row.stage), visit("variant", row.variant), visit("pass", row.pass);
    visit("idea", row.idea), visit("kernel", row.kernel), visit("device", row.device), visit("problem", row.problem);
    visit("flops", row.flops), visit("compulsory_bytes", row.compulsory_bytes);
    visit("extra_memory_bytes", row.extra_memory_bytes), visit("tiles", row.tiles), visit("check", row.check);
    visit("threads", row.threads), visit("time", row.time), visit("tflops", row.tflops);
    visit("percent_of_peak", row.percent_of_peak), visit("predicted", row.predicted), visit("counters", row.counters);
    visit("remarks", row.remarks), visit("tune", row.tune), visit("wall_s", row.wall_s);
    visit("hbm_read_bytes", row.hbm_read_bytes), visit("hbm_written_bytes", row.hbm_written_bytes);
    visit("verdict", row.verdict), visit("message", row.message), visit("commit", row.commit), visit("date", row.date);
    visit("sources", row.sources), visit("torch", row.torch), visit("cudnn", row.cudnn), visit("profile", row.profile);
    visit("counters_of_a_head", row.counters_of_a_head), visit("sustained", row.sustained);
  }

  std::string label() const { return stage + "/" + variant; }

  /// The value at a path such as "time.median_ms"; null if it is missing.
  Json at(const std::string& path) const;
  std::optional<double> number(const std::string& path) const;  ///< absent if it is none

  bool is_tuned() const { return !tune.is_null(); }
  Problem parsed_problem() const;
  Backend backend() const { return device.value("kind", "") == "gpu" ? Backend::gpu : Backend::cpu; }
  int simulated_sm() const { return device.value("simulates_sm", 90); }

  /// The device as far as it matters: counts are the same on every processor, but not for every GPU that it simulates.
  std::string place() const;

  /// Of rows with the same key, which are runs of the same thing, the latest holds.
  std::string key() const;

  /// "64,32"; absent if the variant has one tile size alone.
  std::optional<std::string> tiles_text() const;

  /// The largest error of O (forward) or of the gradients (backward); absent without a check, infinity if not finite.
  std::optional<double> max_error() const;

  std::size_t rounds() const;  ///< how often it was timed

  /// Adds the time of one more round. All rounds count alike: the median is the median of their medians.
  void add_round(const Row& again);
};

/// UsageError with what is wrong if it is no row.
Row row_from_json(const Json&);

Json to_json(const Row&);
std::string json_line(const Row&);

/// {"stage": "string", ...}: the name and the JSON type of each field.
Json schema();

/// What a run's finished program means. `known`: what its row says whatever the program did; a report adds to that.
Row make_row(const Json& known, const ProcessResult&);

/// Did anything fail? A run that the time limit ended counts only if its variant finished no problem in that pass, and so may hang;
/// otherwise the problem is long, which a sweep is told to expect.
bool any_failure(const std::vector<Row>&);

/// A row's problem.
Json problem_json(const Case&);

}  // namespace flash
