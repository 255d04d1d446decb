#include "common/harness/report_json.hpp"
#include "common/attention/cost.hpp"
#include "common/harness/json.hpp"

namespace flash {

using report::Json;

namespace {

/// 10^12 FLOPs per second of the median.
double tflops(const Heading& run, const Timing& time) {
  return time.median_ms > 0 ? flops(run.problem, run.pass) / (time.median_ms * 1e9) : 0;
}

Json tiles_json(const Tiles& tiles) { return {{"br", tiles.Br}, {"bc", tiles.Bc}}; }

Json choice_json(const TileChoice& choice) {
  Json json = tiles_json(choice.tiles);
  json["threads"] = choice.threads;
  json["shared_bytes"] = choice.shared_bytes;
  json["why"] = choice.why;
  return json;
}

Json listed_choice(const TileChoice& choice) {
  Json json = choice_json(choice);
  for (const ThreadPart& part : choice.thread) {
    json["thread"][part.matrix] = {
        {"rows", part.rows}, {"cols", part.cols}, {"lanes", part.lanes}, {"row_run", part.row_run}, {"col_run", part.col_run}};
  }
  return json;
}

Json problem_json(const Heading& run) {
  Json json = problem_json(run.problem);
  if (run.load.empty()) {
    json["input"] = to_string(run.input);
  } else {
    json["load"] = run.load;
  }
  json["seed"] = run.seed;
  return json;
}

Json check_json(const CheckReport& check) {
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
  return {{"passed", check.passed}, {"sampled", check.sampled}, {"tensors", tensors}};
}

Json counters_json(const Counters& counters) {
  Json tensors = Json::object();
  for (const TensorTraffic& t : counters.traffic) {
    tensors[t.tensor] = {{"read_bytes", t.read_bytes},
                         {"written_bytes", t.written_bytes},
                         {"read_sectors", t.read_sectors},
                         {"written_sectors", t.written_sectors}};
  }
  return {{"read_bytes", counters.read_bytes()},
          {"written_bytes", counters.written_bytes()},
          {"sectors", counters.sectors()},
          {"tensors", tensors},
          {"bank_conflicts", counters.bank_conflicts},
          {"tensor_core_products", counters.tensor_core_products},
          {"barriers", counters.barriers},
          {"warp_operations", counters.warp_operations},
          {"atomics", counters.atomics},
          {"launches", counters.launches},
          {"blocks", counters.blocks},
          {"threads", counters.threads}};
}

Json predicted_json(const Prediction& predicted) {
  if (predicted.tensors.empty()) return nullptr;
  Json tensors = Json::object();
  for (const auto& [name, moved] : predicted.tensors) {
    tensors[name] = {{"read_bytes", moved.read}, {"written_bytes", moved.written}};
  }
  const auto or_null = [](std::optional<std::int64_t> n) { return n ? Json(*n) : Json(nullptr); };
  const Moved all = sum_of(predicted.tensors);
  return {{"read_bytes", all.read},
          {"written_bytes", all.written},
          {"sectors", or_null(predicted.sectors)},
          {"barriers", or_null(predicted.barriers)},
          {"warp_operations", or_null(predicted.warp_operations)},
          {"tensors", tensors}};
}

Json time_json(const Timing& time) {
  return {{"median_ms", time.median_ms},
          {"min_ms", time.min_ms},
          {"max_ms", time.max_ms},
          {"iterations", time.iterations},
          {"cold_l2", time.cold_l2},
          {"enqueue_ms", time.enqueue_ms},
          {"first_enqueue_ms", time.first_enqueue_ms}};
}

Json heading_json(const Heading& run) {
  Json json{{"stage", run.stage.name},
            {"variant", run.variant.name},
            {"pass", to_string(run.pass)},
            {"idea", run.variant.idea},
            {"kernel", run.variant.file}};
  json["device"] = device_json(run.device);
  json["problem"] = problem_json(run);
  json["flops"] = flops(run.problem, run.pass);
  json["compulsory_bytes"] = compulsory_bytes(run.problem, run.pass);
  json["extra_memory_bytes"] = run.workspace_bytes;
  return json;
}

}  // namespace

Json report::to_json(const RunRecord& run) {
  Json json = heading_json(run);
  json["tiles"] = run.tiles ? tiles_json(*run.tiles) : Json(nullptr);
  if (run.check) json["check"] = check_json(*run.check);
  if (run.diagnosis) {
    if (run.check) json["check"]["passed"] = run.passed();  // a right result of threads that race is luck
    json["threads"] = {{"passed", run.diagnosis->mistakes.empty()},
                       {"complete", run.diagnosis->complete},
                       {"mistakes", run.diagnosis->mistakes},
                       {"hints", run.diagnosis->hints},
                       {"rules", run.diagnosis->rules}};
  }
  if (run.timing) {
    json["time"] = time_json(*run.timing);
    json["tflops"] = tflops(run, *run.timing);
    const double peak = run.problem.dtype == Dtype::fp32 ? run.device.peak_fp32_tflops : run.device.peak_tensor16_tflops;
    json["percent_of_peak"] = peak > 0 ? Json(100 * tflops(run, *run.timing) / peak) : Json(nullptr);
  }
  json["predicted"] = predicted_json(run.predicted);
  if (run.counters) json["counters"] = counters_json(*run.counters);
  if (!run.remarks.empty()) json["remarks"] = run.remarks;
  if (!run.saved.empty()) json["saved"] = run.saved;
  return json;
}

Json report::to_json(const TuneRecord& record) {
  const Heading& run = record.run;
  const TunedTiles* fastest = nullptr;  // of those that were timed
  Json rows = Json::array();
  for (const TunedTiles& tuned : record.choices) {
    Json row = choice_json(tuned.choice);
    row["blocks_per_sm"] = tuned.blocks_per_sm;
    if (tuned.check) row["check"] = check_json(*tuned.check);
    if (tuned.timing) {
      row["time"] = time_json(*tuned.timing);
      row["tflops"] = tflops(run, *tuned.timing);
      if (fastest == nullptr || tuned.timing->median_ms < fastest->timing->median_ms) fastest = &tuned;
    }
    if (tuned.counters) row["counters"] = counters_json(*tuned.counters);
    rows.push_back(row);
  }
  Json json = heading_json(run);
  json["tune"] = {{"default", tiles_json(record.choices.front().choice.tiles)},
                  {"why", record.choices.front().choice.why},
                  {"fastest", fastest == nullptr ? Json(nullptr) : tiles_json(fastest->choice.tiles)},
                  {"choices", rows}};
  return json;
}

Json report::to_json(const StageInfo& stage, const std::vector<Variant>& list, const TilesToList& what) {
  Json rows = Json::array();
  for (const Variant& variant : list) {
    Json passes = Json::array({to_string(Pass::forward)});
    if (variant.backward != nullptr) passes.push_back(to_string(Pass::backward));
    Json dtypes = Json::array();
    for (const Dtype dtype : variant.dtypes) dtypes.push_back(to_string(dtype));
    Json tiles = Json::array();
    for (const ListedTiles& listed : list_tiles(variant, what)) {
      Json choices = Json::array();
      for (const TileChoice& choice : listed.choices) choices.push_back(listed_choice(choice));
      tiles.push_back({{"pass", to_string(listed.pass)}, {"head_dims", listed.head_dims}, {"choices", choices}});
    }
    rows.push_back({{"name", variant.name},
                    {"idea", variant.idea},
                    {"passes", passes},
                    {"dtypes", dtypes},
                    {"max_head_dim", variant.max_head_dim},
                    {"takes", names_of(variant.takes)},
                    {"needs", names_of(variant.needs)},
                    {"kernel", variant.file},
                    {"only_if_fastest", variant.only_if_fastest},
                    {"tiles", tiles}});
  }
  return {{"stage", stage.name}, {"idea", stage.idea}, {"variants", rows}};
}

}  // namespace flash
