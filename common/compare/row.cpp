#include "common/compare/row.hpp"

#include "common/harness/json.hpp"
#include "common/harness/parse.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

namespace flash {
namespace {

const char* verdict_of(const ProcessResult& result, bool has_report) {
  if (result.timed_out) return verdict::timed_out;
  if (result.signal != 0) return verdict::crashed;
  if (result.exit_code == 1) return has_report ? verdict::wrong : verdict::stopped;
  if (result.exit_code == 2) return verdict::refused;
  if (result.exit_code == 3) return verdict::no_room;
  return result.exit_code == 0 && has_report ? verdict::ok : verdict::crashed;
}

/// The name and the JSON type of each field. Row in rows.py has the same.
const Json& schema() {
  static const Json types = Json::parse(R"({
    "stage": "string", "variant": "string", "pass": "string", "idea": "string", "kernel": "string",
    "device": "object", "problem": "object", "flops": "number", "compulsory_bytes": "number",
    "extra_memory_bytes": "integer", "tiles": "object", "check": "object", "threads": "object", "time": "object",
    "tflops": "number", "percent_of_peak": "number", "predicted": "object", "counters": "object", "remarks": "array",
    "tune": "object", "wall_s": "number", "hbm_read_bytes": "integer", "hbm_written_bytes": "integer",
    "verdict": "string", "message": "string", "commit": "string", "date": "string", "sources": "object",
    "torch": "string", "cudnn": "string", "profile": "array", "counters_of_a_head": "object", "sustained": "object"})");
  return types;
}

/// UsageError if a row's field cannot have this value.
void check_field(const std::string& name, const Json& value) {
  if (!schema().contains(name)) throw UsageError("'" + name + "' is no field of a row");
  const std::string type = schema()[name];
  if (type == "integer" ? !value.is_number_integer() : value.type_name() != type) {
    throw UsageError("'" + name + "' is " + value.dump().substr(0, 60) + "; allowed: " + type);
  }
  if (name == "pass") parse_choice(name, value.get<std::string>(), all_passes);
  const auto verdicts = {verdict::ok,        verdict::wrong,   verdict::stopped, verdict::crashed,
                         verdict::timed_out, verdict::refused, verdict::no_room, verdict::skipped};
  if (name == "verdict" && std::find(verdicts.begin(), verdicts.end(), value.get<std::string>()) == verdicts.end()) {
    throw UsageError("verdict is '" + value.get<std::string>() + "'; allowed: ok, WRONG, refused and others");
  }
}

}  // namespace

Json Row::at(const std::string& path) const {
  std::string slashes = "/" + path;
  std::replace(slashes.begin(), slashes.end(), '.', '/');
  const Json::json_pointer pointer(slashes);
  return json.contains(pointer) ? json.at(pointer) : Json();
}

std::optional<double> Row::number(const std::string& path) const {
  const Json value = at(path);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

FullProblem Row::problem() const {
  try {
    const Json& given = json.at("problem");
    const auto text = [&](const char* name) { return given.at(name).get<std::string>(); };
    const auto size = [&](const char* name) { return given.at(name).get<std::int64_t>(); };
    ProblemOptions options;
    options.causal = given.at("causal").get<bool>();
    options.bias = parse_choice("bias", text("bias"), all_biases);
    options.dtype = parse_choice("dtype", text("dtype"), all_dtypes);
    options.layout = parse_choice("layout", text("layout"), all_layouts);
    if (given.contains("window")) options.window = parse_window("window", text("window"));
    if (given.contains("softcap")) options.softcap = given["softcap"].get<float>();
    if (given.contains("lengths")) options.sequences = parse_lengths("lengths", text("lengths"));
    if (given.contains("dropout"))
      options.dropout = {given["dropout"].get<float>(), given.at("dropout_seed").get<std::uint64_t>()};
    if (given.contains("bias_gradient")) options.bias_gradient = given["bias_gradient"].get<bool>();
    if (given.contains("score")) options.score = parse_choice("score", text("score"), all_scores);
    if (given.contains("values")) options.values = parse_choice("values", text("values"), all_values);
    if (given.contains("scale")) options.scale = given["scale"].get<float>();
    return make_problem(options,
                        {size("batch"), size("heads"), size("kv_heads"), size("seq_q"), size("seq_k"), size("head_dim")});
  } catch (const Json::exception& wrong) {
    throw UsageError(std::string("its problem is none: ") + wrong.what());
  }
}

std::string Row::place() const {
  return backend() == Backend::gpu ? "gpu " + device_name() : "cpu " + std::to_string(simulated_sm());
}

std::string Row::key() const {
  Json same = problem_json(problem());  // programs differ in the digits of the scale
  for (const char* name : {"input", "seed"}) {
    if (json["problem"].contains(name)) same[name] = json["problem"][name];
  }
  return label() + " " + text("pass") + " " + place() + " " + same.dump();
}

std::size_t Row::rounds() const {
  const Json all = at("time.rounds_ms");
  return all.is_array() ? all.size() : number("time.median_ms") ? 1 : 0;
}

void Row::add_round(const Row& again) {
  Json& time = json.at("time");
  const Json& added_time = again.json.at("time");
  const double before = time.at("median_ms"), added = added_time.at("median_ms");
  std::vector<double> medians = time.value("rounds_ms", std::vector{before});
  medians.push_back(added);
  time["rounds_ms"] = medians;
  std::sort(medians.begin(), medians.end());
  const double median = (medians[(medians.size() - 1) / 2] + medians[medians.size() / 2]) / 2;
  time["median_ms"] = median;
  time["min_ms"] = std::min(time.value("min_ms", before), added_time.value("min_ms", added));
  time["max_ms"] = std::max(time.value("max_ms", before), added_time.value("max_ms", added));
  for (const char* rate : {"tflops", "percent_of_peak"}) {
    if (json.contains(rate)) json[rate] = json[rate].get<double>() * before / median;
  }
}

Row row_from_json(const Json& json) {
  if (!json.is_object()) throw UsageError("it is no JSON object");
  Row row;
  for (const auto& [name, value] : json.items()) {
    if (!value.is_null()) check_field(name, value);
    if (!value.is_null() && value != "") row.json[name] = value;
  }
  for (const char* needed : {"stage", "variant", "pass", "device", "problem", "verdict"}) {
    if (!row.json.contains(needed)) throw UsageError(std::string("it has no '") + needed + "'");
  }
  row.key();  // what it asks of the device and the problem is there
  return row;
}

std::string json_line(const Row& row) { return row.json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

Row make_row(const Json& known, const ProcessResult& result) {
  const Json report = Json::parse(result.output, nullptr, /*allow_exceptions=*/false);
  const std::string verdict = verdict_of(result, report.is_object());
  Json json = known;
  const auto say = [&](const std::string& said, const std::string& message) {
    json["verdict"] = said;
    if (said != verdict::ok && said != verdict::wrong) json["message"] = message;
    return row_from_json(json);
  };
  if (!report.is_object()) return say(verdict, complaint(result));
  try {
    json.update(report);
    for (const char* name : {"stage", "variant", "pass", "idea"}) json[name] = known.at(name);
    if (verdict == verdict::ok && report.contains("verdict")) return row_from_json(json);  // of a peer
    return say(verdict, complaint(result));
  } catch (const std::exception& wrong) {
    json = known;
    return say(verdict::crashed, std::string("its report is no row: ") + wrong.what());
  }
}

int exit_code(const std::vector<Row>& rows) {
  const auto any = [&](auto&& holds) { return std::any_of(rows.begin(), rows.end(), holds); };
  const auto finished = [&](const Row& slow) {
    return any([&](const Row& row) { return row.is_ok() && row.label() == slow.label() && row.pass() == slow.pass(); });
  };
  const auto failed = [&](const Row& row) {
    const std::string said = row.verdict();
    return said == verdict::wrong || said == verdict::stopped || said == verdict::crashed ||
           (said == verdict::timed_out && !finished(row));
  };
  if (any(failed)) return 1;
  if (any([](const Row& row) { return row.is_ok(); })) return 0;
  return any([](const Row& row) { return row.verdict() == verdict::no_room; }) ? 3 : 2;
}

std::vector<Row> read_rows(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return {};
  if (!std::filesystem::is_regular_file(file, error)) throw UsageError(file + " is not a regular file");
  std::ifstream stream(file);
  if (!stream) throw UsageError(file + " cannot be read");
  std::vector<Row> rows;
  std::map<std::string, std::size_t> places;
  std::size_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    try {
      if (stream.eof()) throw UsageError("it has no end");
      Row row = row_from_json(Json::parse(line, nullptr, /*allow_exceptions=*/false));
      const auto [place, is_new] = places.try_emplace(row.key(), rows.size());
      if (is_new) rows.emplace_back();
      rows[place->second] = std::move(row);
    } catch (const std::exception& wrong) {
      throw UsageError(file + ":" + std::to_string(number) + ": " + wrong.what() + "; allowed: rows that compare --save wrote");
    }
  }
  return rows;
}

void append(const std::string& file, const std::string& lines) {
  std::ofstream stream(file, std::ios::app);
  stream << lines << std::flush;
  if (!stream) throw UsageError(file + " cannot be written: " + std::strerror(errno));
}

Json problem_json(const Case& task) {
  Json json = problem_json(task.problem);
  json["input"] = to_string(task.options.input);
  json["seed"] = task.options.seed;
  return json;
}

}  // namespace flash
