// Rows to JSON and back.
#include "common/compare/row.hpp"
#include "common/harness/parse.hpp"
#include "common/harness/problem_json.hpp"

namespace flash {
namespace {

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

Row row_from_json(const Json& json) {
  if (!json.is_object()) throw UsageError("it is no object");
  Row row;
  row.stage = text_of(json, "stage");
  row.variant = text_of(json, "variant");
  row.pass = parse_choice("pass", text_of(json, "pass"), all_passes);
  const bool old = json.contains("tune") && !json.contains("verdict");  // once rows of --tune had none
  row.verdict = old ? Verdict::ok : parse_choice("verdict", text_of(json, "verdict"), all_verdicts);
  if (json.contains("message")) row.message = text_of(json, "message");
  row.problem = problem_of(json.contains("problem") ? json["problem"] : Json());
  row.report = json;
  if (old) row.report["verdict"] = to_string(row.verdict);
  return row;
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
