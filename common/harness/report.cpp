// The JSON of a run and of a list of variants. Their text: report_text.cpp.
#include "common/harness/report.hpp"

#include "common/attention/cost.hpp"
#include "common/attention/option_table.hpp"
#include "common/harness/text.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <sstream>

namespace flash {

// Keys of the same names.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TensorTraffic, read_bytes, written_bytes, read_sectors, written_sectors)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Counters, bank_conflicts, tensor_core_products, barriers, warp_operations, atomics, launches,
                                   blocks, threads)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Timing, median_ms, min_ms, max_ms, iterations, cold_l2)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BrokenRule, rule, text, lines)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Diagnosis, complete, mistakes, rules, hints)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ThreadPart, rows, cols, lanes, row_run, col_run)

namespace {

using Json = nlohmann::ordered_json;  // keys in the order in which they are set
using SortedJson = nlohmann::json;    // what the macros above make
using Row = std::vector<std::string>;

/// Bytes that are not UTF-8 (folder names may have them) are replaced, numbers that are not finite become null.
std::string printed(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

Json json_of(const DeviceInfo& device) {
  Json json{{"kind", device.kind == Backend::gpu ? "gpu" : "cpu"},
            {"name", device.name},
            {"sm", device.sm},
            {"cuda", device.cuda},
            {"driver", device.driver}};
  if (device.kind == Backend::cpu) json.update({{"simulates_sm", device.simulates_sm}, {"order", device.order}});
  // The two roofs, and the slope, of a roofline, as far as they are known.
  for (const auto& [key, peak] : {std::pair{"peak_fp32_tflops", device.peak_fp32_tflops},
                                  {"peak_tensor16_tflops", device.peak_tensor16_tflops},
                                  {"peak_bytes_per_second", device.peak_bytes_per_second}}) {
    if (peak > 0) json[key] = peak;
  }
  return json;
}

Json json_of(const FullProblem& problem) {
  Json json;
  for (const ProblemOption& option : problem_options()) {
    if (option.traits.named == Named::if_set && !is_set(option, problem)) continue;
    std::string key = std::string(option.name).substr(2);
    std::replace(key.begin(), key.end(), '-', '_');  // emscripten's library lacks the range's
    with_value(option, problem, [&](const auto& value) {
      if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>) {
        json[key] = value;
      } else {
        json[key] = value_text(option, problem);
      }
    });
  }
  return json;
}

/// For programs that have the same options.
Json options_json() {
  Json all = Json::array();
  for (const ProblemOption& option : problem_options())
    all.push_back({{"name", option.name}, {"value", values_text(option)}, {"help", option.help}});
  return all;
}

Json json_of(const RunRecord& run, const CheckReport& check) {
  Json tensors = Json::object();
  for (const TensorCheck& t : check.tensors) {
    tensors[t.tensor] = {{"max_abs", t.max_abs},
                         {"rel_l2", t.rel_l2},
                         {"tolerance", t.tolerance},
                         {"non_finite", t.non_finite},
                         {"passed", t.passed}};
    if (t.passed) continue;
    tensors[t.tensor]["worst"] = {{"batch", t.worst.b},    {"head", t.worst.h},  {"row", t.worst.row},
                                  {"column", t.worst.col}, {"got", t.worst.got}, {"expected", t.worst.expected}};
  }
  return {{"passed", run.passed()}, {"sampled", check.sampled}, {"tensors", tensors}};
}

Json json_of(const Counters& counters) {
  Json tensors = Json::object();
  for (const TensorTraffic& tensor : counters.traffic) tensors[tensor.tensor] = SortedJson(tensor);
  Json json{{"read_bytes", counters.read_bytes()},
            {"written_bytes", counters.written_bytes()},
            {"sectors", counters.sectors()},
            {"tensors", tensors}};
  json.update(Json(SortedJson(counters)));
  return json;
}

Json json_of(const Prediction& predicted) {
  if (predicted.tensors.empty()) return nullptr;
  Json tensors = Json::object();
  for (const auto& [name, moved] : predicted.tensors) {
    tensors[name] = {{"read_bytes", moved.read}, {"written_bytes", moved.written}};
  }
  const auto or_null = [](std::optional<std::int64_t> n) { return n ? Json(*n) : Json(nullptr); };
  const MemoryTraffic all = sum_of(predicted.tensors);
  return {{"read_bytes", all.read},
          {"written_bytes", all.written},
          {"sectors", or_null(predicted.sectors)},
          {"barriers", or_null(predicted.barriers)},
          {"warp_operations", or_null(predicted.warp_operations)},
          {"tensors", tensors}};
}

Json json_of(const Tiles& tiles) { return {{"br", tiles.Br}, {"bc", tiles.Bc}}; }

Json json_of(const TileChoice& choice) {
  Json json = json_of(choice.tiles);
  json.update({{"threads", choice.threads}, {"shared_bytes", choice.shared_bytes}, {"why", choice.why}});
  for (const ThreadPart& part : choice.thread) json["thread"][part.matrix] = SortedJson(part);
  return json;
}

/// The tiles of a variant by pass: neighbouring head dimensions that have the same share an entry.
Json tiles_json(const Variant& variant, const FullProblem& given, const std::vector<int>& head_dims,
                const DeviceLimits& limits) {
  const auto same = [](const TileChoice& x, const TileChoice& y) {
    return x.tiles == y.tiles && x.threads == y.threads && x.shared_bytes == y.shared_bytes;
  };
  Json all = Json::array();
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (variant.tiles == nullptr || !has_own_pass(variant, pass)) continue;
    std::optional<std::vector<TileChoice>> before;
    for (const int d : head_dims) {
      if (d > variant.max_head_dim) continue;
      FullProblem problem = given;
      problem.d = d;
      if (!refusal(variant, problem).empty()) problem.dtype = variant.dtypes.front();
      std::vector<TileChoice> choices;
      if (refusal(variant, problem, limits).empty()) choices = variant.tiles(problem, pass, limits);
      if (before && std::equal(choices.begin(), choices.end(), before->begin(), before->end(), same)) {
        all.back().at("head_dims").push_back(d);
        continue;
      }
      all.push_back({{"pass", to_string(pass)}, {"head_dims", {d}}, {"choices", Json::array()}});
      for (const TileChoice& choice : choices) all.back().at("choices").push_back(json_of(choice));
      before = std::move(choices);
    }
  }
  return all;
}

std::string list_text(const Json& json, int sm) {
  const auto words = [](const Json& of) {  // which is a text, or a list
    const auto word = [](const Json& item) { return item.is_string() ? item.get<std::string>() : item.dump(); };
    return of.is_array() ? joined(of, word) : word(of);
  };
  std::vector<Row> tiles{{"variant", "pass", "d", "tiles Br,Bc on sm_" + std::to_string(sm)}};
  std::vector<Row> variants{{"variant", "passes", "dtypes", "kernel"}};
  for (const Json& variant : json.at("variants")) {
    variants.push_back(
        {words(variant.at("name")), words(variant.at("passes")), words(variant.at("dtypes")), words(variant.at("kernel"))});
    for (const Json& listed : variant.at("tiles")) {
      const Json& all = listed.at("choices");
      const auto tiles_text = [&](const Json& choice) {
        return choice.at("br").dump() + "," + choice.at("bc").dump() + (&choice == &all.front() ? " (default)" : "");
      };
      const std::string choices = all.empty() ? "none fits" : joined(all, tiles_text, "  ");
      const Row row{words(variant.at("name")), words(listed.at("pass")), words(listed.at("head_dims")), choices};
      const Row& last = tiles.back();  // which may differ in threads and shared memory alone
      if (last[0] == row[0] && last[1] == row[1] && last[3] == row[3]) {
        tiles.back()[2] += ", " + row[2];
      } else {
        tiles.push_back(row);
      }
    }
  }
  std::string text = wrapped(words(json.at("stage")) + ": " + words(json.at("idea")), 2) + "\n";
  std::istringstream rows(table(2, variants, 4));
  std::string row;
  std::getline(rows, row);
  text += row + "\n";
  for (const Json& variant : json.at("variants")) {  // each idea below its variant
    std::getline(rows, row);
    text += row + "\n" + wrapped("      " + words(variant.at("idea")), 6) + "\n";
  }
  return tiles.size() > 1 ? text + table(2, tiles, 4) : text;
}

}  // namespace

std::string json_of(const RunRecord& run) {
  Json json{{"stage", run.stage.name},
            {"variant", run.variant.name},
            {"pass", to_string(run.pass)},
            {"idea", run.variant.idea},
            {"kernel", run.variant.file},
            {"device", json_of(run.device)},
            {"problem", json_of(run.problem)},
            {"flops", flops(run.problem, run.pass)},
            {"compulsory_bytes", compulsory_bytes(run.problem, run.pass)},
            {"extra_memory_bytes", run.workspace_bytes},
            {"tiles", run.tiles ? json_of(*run.tiles) : Json(nullptr)}};
  if (!run.load.empty()) {
    json["problem"].erase("input");
    json["problem"]["load"] = run.load;
  }
  if (run.check) json["check"] = json_of(run, *run.check);
  if (run.diagnosis.watched) {
    json["threads"] = {{"passed", run.diagnosis.mistakes.empty()}};
    json["threads"].update(Json(SortedJson(run.diagnosis)));
  }
  if (run.timing) json["time"] = SortedJson(*run.timing);
  json["predicted"] = json_of(run.predicted);
  if (run.counters) json["counters"] = json_of(*run.counters);
  if (!run.diagnosis.remark.empty()) json["remarks"] = {run.diagnosis.remark};
  if (!run.saved.empty()) json["saved"] = run.saved;
  return printed(json);
}

std::string list_of(const StageInfo& stage, const std::vector<Variant>& list, const FullProblem& problem,
                    const std::vector<int>& head_dims, const DeviceLimits& limits, bool as_json) {
  Json json{{"stage", stage.name},
            {"idea", stage.idea},
            {"options", options_json()},
            {"problem", json_of(problem)},
            {"variants", Json::array()}};
  for (const Variant& variant : list) {
    Json passes = Json::array(), dtypes = Json::array();
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      if (has_own_pass(variant, pass)) passes.push_back(to_string(pass));
    }
    for (const Dtype dtype : variant.dtypes) dtypes.push_back(to_string(dtype));
    json["variants"].push_back({{"name", variant.name},
                                {"idea", variant.idea},
                                {"passes", passes},
                                {"dtypes", dtypes},
                                {"max_head_dim", variant.max_head_dim},
                                {"refusal", refusal(variant, problem)},
                                {"kernel", variant.file},
                                {"in_more", variant.in_more},
                                {"tiles", tiles_json(variant, problem, head_dims, limits)}});
  }
  return as_json ? printed(json) : list_text(json, limits.sm);
}

}  // namespace flash
