#include "common/compare/row.hpp"

#include "common/compare/plan.hpp"
#include "common/harness/parse.hpp"
#include "common/harness/problem_json.hpp"
#include "common/harness/tiles.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

namespace flash {
namespace {

Verdict verdict_of(const ProcessResult& result, bool has_report) {
  if (!result.started) return Verdict::crashed;
  if (result.timed_out) return Verdict::timed_out;
  if (result.signal != 0) return Verdict::crashed;
  if (result.exit_code == 1) return has_report ? Verdict::wrong : Verdict::stopped;
  if (result.exit_code == 2) return Verdict::refused;
  if (result.exit_code == 3) return Verdict::no_room;
  return result.exit_code == 0 && has_report ? Verdict::ok : Verdict::crashed;
}

std::string message_of(const ProcessResult& result) {
  if (!result.started) return "cannot be started: " + result.error;
  std::string text = result.error.substr(0, result.error.find_last_not_of('\n') + 1);
  if (result.signal != 0 && !result.timed_out) {
    text = std::string("ended by signal ") + std::to_string(result.signal) + " (" + strsignal(result.signal) + ")" +
           (text.empty() ? "" : ": " + text);
  }
  return text;
}

constexpr Verdict all_verdicts[]{Verdict::ok,        Verdict::wrong,   Verdict::stopped, Verdict::crashed,
                                 Verdict::timed_out, Verdict::refused, Verdict::no_room, Verdict::skipped};

std::string text_of(const Json& object, const char* key) {
  if (!object.contains(key) || !object[key].is_string()) throw UsageError(std::string("it has no text '") + key + "'");
  return object[key].get<std::string>();
}

std::int64_t size_in(const Json& object, const char* key) {
  if (!object.contains(key) || !object[key].is_number_integer()) {
    throw UsageError(std::string("its problem has no whole number '") + key + "'");
  }
  return object[key].get<std::int64_t>();
}

Problem problem_of(const Json& json) {
  if (!json.is_object()) throw UsageError("it has no problem");
  if (!json.contains("causal") || !json["causal"].is_boolean())
    throw UsageError("its problem does not say whether it is causal");
  ProblemOptions options;
  options.causal = json["causal"].get<bool>();
  options.bias = parse_choice("bias", text_of(json, "bias"), all_biases);
  options.dtype = parse_choice("dtype", text_of(json, "dtype"), all_dtypes);
  options.layout = parse_choice("layout", text_of(json, "layout"), all_layouts);
  if (json.contains("scale") && json["scale"].is_number()) options.scale = json["scale"].get<float>();
  return make_problem(options, {.batch = size_in(json, "batch"),
                                .heads = size_in(json, "heads"),
                                .kv_heads = size_in(json, "kv_heads"),
                                .seq_q = size_in(json, "seq_q"),
                                .seq_k = size_in(json, "seq_k"),
                                .head_dim = size_in(json, "head_dim")});
}

}  // namespace

const char* to_string(Verdict verdict) {
  constexpr const char* names[]{"ok", "WRONG", "STOPPED", "CRASHED", "TIMED OUT", "refused", "cannot run", "skipped"};
  static_assert(std::size(names) == static_cast<std::size_t>(Verdict::skipped) + 1, "a name for each, in their order");
  return names[static_cast<std::size_t>(verdict)];
}

bool any_failure(const std::vector<Row>& rows) {
  const auto finished = [&](const Row& slow) {
    return std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
      return row.verdict == Verdict::ok && row.label() == slow.label() && row.pass == slow.pass;
    });
  };
  return std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
    return row.verdict == Verdict::wrong || row.verdict == Verdict::stopped || row.verdict == Verdict::crashed ||
           (row.verdict == Verdict::timed_out && !finished(row));
  });
}

Json Row::at(std::string path) const {
  std::replace(path.begin(), path.end(), '.', '/');
  const Json::json_pointer pointer("/" + path);
  return report.contains(pointer) ? report.at(pointer) : Json();
}

std::optional<double> Row::number(const std::string& path) const {
  const Json value = at(path);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

std::string Row::text(const std::string& path) const {
  const Json value = at(path);
  return value.is_string() ? value.get<std::string>() : "";
}

std::optional<std::string> Row::tiles() const {
  const std::optional<double> Br = number("tiles.br"), Bc = number("tiles.bc");
  if (!Br || !Bc) return std::nullopt;
  return to_string(Tiles{static_cast<int>(*Br), static_cast<int>(*Bc)});
}

std::optional<double> Row::max_error() const {
  std::optional<double> largest;
  for (const std::string tensor : pass == Pass::forward ? std::vector{"o"} : std::vector{"dq", "dk", "dv"}) {
    const std::string of = "check.tensors." + tensor;
    if (!number(of + ".tolerance")) continue;  // it was not checked
    largest = std::max(largest.value_or(0), number(of + ".max_abs").value_or(std::numeric_limits<double>::infinity()));
  }
  return largest;
}

std::string Row::place() const {
  return backend() == Backend::gpu ? "gpu " + text("device.name") : "cpu " + std::to_string(simulated_sm());
}

Row empty_row(const Run& run, Verdict verdict, const std::string& message) {
  return {.stage = run.stage->name,
          .variant = run.variant->name,
          .pass = run.pass,
          .problem = run.problem(),
          .verdict = verdict,
          .message = message};
}

Row make_row(const Run& run, const ProcessResult& result) {
  Json report = Json::parse(result.output, nullptr, /*allow_exceptions=*/false);
  const bool has_report = report.is_object();
  const Verdict verdict = verdict_of(result, has_report);
  Row row = empty_row(run, verdict, verdict == Verdict::ok ? "" : message_of(result));
  if (has_report) row.report = std::move(report);
  return row;
}

Row row_from_json(const Json& json) {
  if (!json.is_object()) throw UsageError("it is no object");
  Row row;
  row.stage = text_of(json, "stage");
  row.variant = text_of(json, "variant");
  row.pass = parse_choice("pass", text_of(json, "pass"), all_passes);
  row.verdict = parse_choice("verdict", text_of(json, "verdict"), all_verdicts);
  if (json.contains("message")) row.message = text_of(json, "message");
  row.problem = problem_of(json.contains("problem") ? json["problem"] : Json());
  row.report = json;
  return row;
}

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

std::vector<double> rounds_of(const Json& report) {
  const Json& time = report.at("time");
  return time.contains("rounds_ms") ? time.at("rounds_ms").get<std::vector<double>>()
                                    : std::vector<double>{time.at("median_ms").get<double>()};
}

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

std::string json_text(const std::vector<Row>& rows) {
  std::string text;
  for (const Row& row : rows) {
    text += (text.empty() ? "[\n" : ",\n") + row.report.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  return text.empty() ? "[]\n" : text + "\n]\n";
}

Json problem_json(const Case& task) {
  Json json = problem_json(task.problem);
  json["input"] = to_string(task.options.input);
  json["seed"] = task.options.seed;
  return json;
}

}  // namespace flash
