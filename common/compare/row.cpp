#include "common/compare/row.hpp"

#include "common/harness/parse.hpp"
#include "common/harness/problem_json.hpp"
#include "common/harness/tiles.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <type_traits>

namespace flash {
namespace {

constexpr Verdict all_verdicts[]{Verdict::ok,        Verdict::wrong,   Verdict::stopped, Verdict::crashed,
                                 Verdict::timed_out, Verdict::refused, Verdict::no_room, Verdict::skipped};

template <class T>
constexpr bool is_json = std::is_same_v<std::remove_const_t<T>, Json>;
template <class T>
constexpr bool is_text = std::is_same_v<std::remove_const_t<T>, std::string>;

template <class T>
const char* type_of(const T&) {
  if constexpr (is_text<T> || std::is_enum_v<T>) return "string";
  if constexpr (std::is_same_v<T, std::vector<Json>>) return "array";
  if constexpr (std::is_same_v<T, std::optional<double>>) return "number";
  if constexpr (std::is_same_v<T, std::optional<std::int64_t>>) return "integer";
  return "object";
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();
  return type == value.type_name();
}

/// Null if the member is empty.
template <class T>
Json json_of(const T& member) {
  if constexpr (std::is_enum_v<T>) {
    return to_string(member);
  } else if constexpr (is_json<T>) {
    return member;
  } else if constexpr (is_text<T> || std::is_same_v<T, std::vector<Json>>) {
    return member.empty() ? Json() : Json(member);
  } else {
    return member ? Json(*member) : Json();
  }
}

template <class T>
void read(T& member, const char* name, const Json& value) {
  if (!has_type(value, type_of(member))) {
    throw UsageError(std::string("'") + name + "' is " + value.dump().substr(0, 60) + "; allowed: " + type_of(member));
  }
  if constexpr (std::is_same_v<T, Pass>) {
    member = parse_choice(name, value.get<std::string>(), all_passes);
  } else if constexpr (std::is_same_v<T, Verdict>) {
    member = parse_choice(name, value.get<std::string>(), all_verdicts);
  } else if constexpr (std::is_same_v<T, std::optional<double>> || std::is_same_v<T, std::optional<std::int64_t>>) {
    member = value.get<typename T::value_type>();
  } else {
    member = value.get<T>();
  }
}

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

}  // namespace

const char* to_string(Verdict verdict) {
  constexpr const char* names[]{"ok", "WRONG", "STOPPED", "CRASHED", "TIMED OUT", "refused", "cannot run", "skipped"};
  static_assert(std::size(names) == std::size(all_verdicts), "a name for each, in their order");
  return names[static_cast<std::size_t>(verdict)];
}

Json Row::at(const std::string& path) const {
  const std::size_t dot = std::min(path.find('.'), path.size());
  std::string rest = path.substr(dot);
  std::replace(rest.begin(), rest.end(), '.', '/');
  const Json::json_pointer inner(rest);
  Json found;
  each_field(*this, [&](const char* name, const auto& member) {
    if (path.compare(0, dot, name) != 0) return;
    if constexpr (is_json<std::remove_reference_t<decltype(member)>>) {
      if (member.contains(inner)) found = member.at(inner);
    } else if (rest.empty()) {
      found = json_of(member);
    }
  });
  return found;
}

std::optional<double> Row::number(const std::string& path) const {
  const Json value = at(path);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

Problem Row::parsed_problem() const {
  try {
    const auto text = [&](const char* name) { return problem.at(name).get<std::string>(); };
    const auto size = [&](const char* name) { return problem.at(name).get<std::int64_t>(); };
    ProblemOptions options;
    options.causal = problem.at("causal").get<bool>();
    options.bias = parse_choice("bias", text("bias"), all_biases);
    options.dtype = parse_choice("dtype", text("dtype"), all_dtypes);
    options.layout = parse_choice("layout", text("layout"), all_layouts);
    if (problem.contains("scale")) options.scale = problem["scale"].get<float>();
    return make_problem(options,
                        {size("batch"), size("heads"), size("kv_heads"), size("seq_q"), size("seq_k"), size("head_dim")});
  } catch (const Json::exception& wrong) {
    throw UsageError(std::string("its problem is none: ") + wrong.what());
  }
}

std::string Row::place() const {
  return backend() == Backend::gpu ? "gpu " + device.value("name", "") : "cpu " + std::to_string(simulated_sm());
}

std::string Row::key() const {
  Json same = problem_json(parsed_problem());  // programs differ in the digits of the scale
  for (const char* name : {"input", "seed"}) {
    if (problem.contains(name)) same[name] = problem[name];
  }
  return label() + " " + to_string(pass) + " " + place() + " " + same.dump() + (is_tuned() ? " tune" : "");
}

std::optional<std::string> Row::tiles_text() const {
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

std::size_t Row::rounds() const {
  const Json all = at("time.rounds_ms");
  return all.is_array() ? all.size() : number("time.median_ms") ? 1 : 0;
}

void Row::add_round(const Row& again) {
  const double before = time.at("median_ms"), added = again.time.at("median_ms");
  std::vector<double> medians = time.value("rounds_ms", std::vector{before});
  medians.push_back(added);
  time["rounds_ms"] = medians;
  std::sort(medians.begin(), medians.end());
  const double median = (medians[(medians.size() - 1) / 2] + medians[medians.size() / 2]) / 2;
  time["median_ms"] = median;
  time["min_ms"] = std::min(time.value("min_ms", before), again.time.value("min_ms", added));
  time["max_ms"] = std::max(time.value("max_ms", before), again.time.value("max_ms", added));
  for (std::optional<double>* rate : {&tflops, &percent_of_peak}) {
    if (*rate) **rate *= before / median;
  }
}

Row row_from_json(const Json& json) {
  if (!json.is_object()) throw UsageError("it is no JSON object");
  Row row;
  Json unknown = json;
  Row::each_field(row, [&](const char* name, auto& member) {
    unknown.erase(name);
    if (json.contains(name) && !json[name].is_null()) read(member, name, json[name]);
  });
  if (!unknown.empty()) throw UsageError("'" + unknown.begin().key() + "' is no field of a row");
  for (const char* needed : {"stage", "variant", "pass", "device", "problem", "verdict"}) {
    if (row.at(needed).is_null() || !json.contains(needed)) throw UsageError(std::string("it has no '") + needed + "'");
  }
  row.key();  // what it asks of the device and the problem is there
  return row;
}

Json to_json(const Row& row) {
  Json json;
  Row::each_field(row, [&](const char* name, const auto& member) {
    Json value = json_of(member);
    if (!value.is_null()) json[name] = std::move(value);
  });
  return json;
}

std::string json_line(const Row& row) { return to_json(row).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

Json schema() {
  Json types;
  const Row row;
  Row::each_field(row, [&](const char* name, const auto& member) { types[name] = type_of(member); });
  return types;
}

Row make_row(const Json& known, const ProcessResult& result) {
  const Json report = Json::parse(result.output, nullptr, /*allow_exceptions=*/false);
  const Verdict verdict = verdict_of(result, report.is_object());
  Json json = known;
  const auto say = [&](Verdict said, const std::string& message) {
    json["verdict"] = to_string(said);
    if (said != Verdict::ok) json["message"] = message;
    return row_from_json(json);
  };
  if (!report.is_object()) return say(verdict, message_of(result));
  try {
    json.update(report);
    for (const char* name : {"stage", "variant", "pass", "idea"}) json[name] = known.at(name);
    if (verdict == Verdict::ok && report.contains("verdict")) return row_from_json(json);  // of a peer
    return say(verdict, message_of(result));
  } catch (const std::exception& wrong) {
    json = known;
    return say(Verdict::crashed, std::string("its report is no row: ") + wrong.what());
  }
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

Json problem_json(const Case& task) {
  Json json = problem_json(task.problem);
  json["input"] = to_string(task.options.input);
  json["seed"] = task.options.seed;
  return json;
}

}  // namespace flash
