#include "common/attention/cost.hpp"
#include "common/harness/report.hpp"

#include <nlohmann/json.hpp>

namespace flash {
namespace {

using Json = nlohmann::ordered_json;  // keys in the order of the report

/// Text; bytes that are not UTF-8 (folder names may have them) are replaced. Numbers that are not finite come out as null.
std::string dump(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

Json problem_json(const RunRecord& run) {
  const Problem& p = run.problem;
  Json json{{"batch", p.B},
            {"heads", p.H},
            {"kv_heads", p.Hkv},
            {"seq_q", p.Nq},
            {"seq_k", p.Nk},
            {"head_dim", p.d},
            {"scale", p.scale},
            {"causal", p.causal},
            {"bias", to_string(p.bias)},
            {"dtype", to_string(p.dtype)},
            {"layout", to_string(p.layout)}};
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

}  // namespace

std::string json_report(const RunRecord& run) {
  const DeviceInfo& device = run.device;
  Json json{{"stage", run.stage.name},
            {"variant", run.variant.name},
            {"pass", to_string(run.pass)},
            {"idea", run.variant.idea},
            {"kernel", run.variant.file}};
  json["device"] = {{"kind", device.kind == Backend::gpu ? "gpu" : "cpu"},
                    {"name", device.name},
                    {"sm", device.sm},
                    {"cuda", device.cuda},
                    {"driver", device.driver}};
  json["problem"] = problem_json(run);
  json["flops"] = flops(run.problem, run.pass);
  json["compulsory_bytes"] = compulsory_bytes(run.problem, run.pass);
  json["extra_memory_bytes"] = run.workspace_bytes;
  if (run.check) json["check"] = check_json(*run.check);
  if (run.timing) {
    json["time"] = {{"median_ms", run.timing->median_ms},
                    {"min_ms", run.timing->min_ms},
                    {"max_ms", run.timing->max_ms},
                    {"iterations", run.timing->iterations},
                    {"cold_l2", run.timing->cold_l2}};
    json["tflops"] = tflops(run);
    const std::optional<double> percent = percent_of_peak(run);
    json["percent_of_peak"] = percent ? Json(*percent) : Json(nullptr);
  }
  if (run.counters) json["counters"] = counters_json(*run.counters);
  return dump(json);
}

std::string list_json(const StageInfo& stage, const std::vector<Variant>& list) {
  Json rows = Json::array();
  for (const Variant& variant : list) {
    Json passes = Json::array({to_string(Pass::forward)});
    if (variant.backward != nullptr) passes.push_back(to_string(Pass::backward));
    Json dtypes = Json::array();
    for (const Dtype dtype : variant.dtypes) dtypes.push_back(to_string(dtype));
    rows.push_back(
        {{"name", variant.name}, {"idea", variant.idea}, {"passes", passes}, {"dtypes", dtypes}, {"kernel", variant.file}});
  }
  return dump({{"stage", stage.name}, {"idea", stage.idea}, {"variants", rows}});
}

}  // namespace flash
