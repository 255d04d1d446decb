#include "common/harness/report.hpp"

#include "common/attention/cost.hpp"
#include "common/attention/option_table.hpp"
#include "common/harness/text.hpp"
#include "common/machine/host_memory.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <sstream>

namespace flash {
namespace {

using Json = nlohmann::ordered_json;  // keys in the order of the report
using Row = std::vector<std::string>;

Json json_of(const Tiles& tiles) { return {{"br", tiles.Br}, {"bc", tiles.Bc}}; }

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
    if (option.named == Named::if_set && !is_set(option, problem)) continue;
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

Json json_of(const CheckReport& check) {
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

Json json_of(const Counters& counters) {
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

Json json_of(const Prediction& predicted) {
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

void add_times(Json& json, const RunRecord& run, const Timing& time) {
  json["time"] = {{"median_ms", time.median_ms},
                  {"min_ms", time.min_ms},
                  {"max_ms", time.max_ms},
                  {"iterations", time.iterations},
                  {"cold_l2", time.cold_l2},
                  {"enqueue_ms", time.enqueue_ms},
                  {"first_enqueue_ms", time.first_enqueue_ms}};
  const double tflops = time.median_ms > 0 ? flops(run.problem, run.pass) / (time.median_ms * 1e9) : 0;
  const double peak = run.problem.dtype == Dtype::fp32 ? run.device.peak_fp32_tflops : run.device.peak_tensor16_tflops;
  json["tflops"] = tflops;
  json["percent_of_peak"] = peak > 0 ? Json(100 * tflops / peak) : Json(nullptr);
}

/// Numbers that are not finite are still themselves in it; printed they become null.
Json json_of(const RunRecord& run) {
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
  if (run.check) json["check"] = json_of(*run.check);
  if (run.diagnosis) {
    if (run.check) json["check"]["passed"] = run.passed();  // a right result of threads that race is luck
    json["threads"] = {{"passed", run.diagnosis->mistakes.empty()},
                       {"complete", run.diagnosis->complete},
                       {"mistakes", run.diagnosis->mistakes},
                       {"rules", run.diagnosis->rules},
                       {"hints", run.diagnosis->hints}};
  }
  if (run.timing) add_times(json, run, *run.timing);
  json["predicted"] = json_of(run.predicted);
  if (run.counters) json["counters"] = json_of(*run.counters);
  if (!run.remarks.empty()) json["remarks"] = run.remarks;
  if (!run.saved.empty()) json["saved"] = run.saved;
  return json;
}

/// Bytes that are not UTF-8 (folder names may have them) are replaced.
std::string printed(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

/// A cell, or a word of a sentence: "-" for nothing, text as it is, counts as 12,345, other numbers with so many digits.
std::string word(const Json& value, int digits = 3) {
  return value.is_null()           ? "-"
         : value.is_string()       ? value.get<std::string>()
         : value.is_number_float() ? number_text(value, digits)
         : value.is_number()       ? count_text(value)
                                   : value.dump();
}

/// "  label        text\n"; a long text goes on below itself.
std::string line(const char* label, const std::string& text) {
  std::string padded(label);
  padded.resize(13, ' ');
  return wrapped("  " + padded + text, 15) + "\n";
}

/// Labelled lines, one for each text; only the first has the label.
std::string lines(const char* label, const Json& texts) {
  std::string text;
  for (const Json& each : texts) text += line(text.empty() ? label : "", each);
  return text;
}

std::string device_text(const Json& device) {
  if (device.at("kind") == "cpu") {
    return "CPU simulator of sm_" + word(device.at("simulates_sm")) + " on " + word(device.at("name")) +
           (device.at("order") == "forward" ? "" : ", thread order " + word(device.at("order")));
  }
  return word(device.at("name")) + ", sm_" + word(device.at("sm")) + ", CUDA " + word(device.at("cuda")) + ", driver " +
         word(device.at("driver"));
}

std::string input_text(const RunRecord& run) {
  return (run.load.empty() ? to_string(run.problem.input) + (", seed " + std::to_string(run.problem.seed))
                           : "loaded from " + run.load) +
         (run.note.empty() ? "" : " (" + run.note + ")");
}

/// The place where a tensor is wrong most. Elements that are not finite are described in words: they are no result.
std::string worst_text(const std::string& tensor, const Json& check) {
  const Json& worst = check.at("worst");
  std::string text = tensor + " is wrong";
  if (check.at("non_finite") > 0) text += " (" + word(check.at("non_finite")) + " elements not finite)";
  text += ", worst at batch " + worst.at("batch").dump() + ", head " + worst.at("head").dump() + ", row " +
          worst.at("row").dump() + ", column " + worst.at("column").dump();
  return text + ": got " + word(worst.at("got"), 9) + ", expected " + word(worst.at("expected"), 9);
}

std::string score_text(float largest) {
  if (!std::isfinite(largest))
    return "The scores of that row overflow fp32 themselves: scale * q.k exceeds 3.4e38. "
           "No variant can mend that; a smaller --scale or smaller inputs can.";
  return "The largest score of that row is " + number_text(static_cast<double>(largest)) +
         ", and this variant does not subtract the row's max: exp " +
         (largest > 0 ? "overflows in fp32 beyond 88.7."
                      : "underflows in fp32 below -87.3 and is 0 below -104, as if the row saw no key.") +
         " 02_safe_softmax shows the cure.";
}

std::string check_text(const RunRecord& run, const Json& json) {
  if (!run.check) return line("check", "skipped");
  const Json& check = json.at("check");
  std::vector<Row> rows{{"tensor", "max error", "tolerance", "relative L2", "verdict"}};
  std::string wrong;
  for (const auto& [tensor, t] : check.at("tensors").items()) {
    rows.push_back(
        {tensor, word(t.at("max_abs")), word(t.at("tolerance")), word(t.at("rel_l2")), t.at("passed") ? "ok" : "WRONG"});
    if (!t.at("passed")) wrong += line("", worst_text(tensor, t));
  }
  return line("check", std::string(run.check->passed ? "passed" : "FAILED") + ", against double precision" +
                           (check.at("sampled") ? ", on a sample of rows" : ", every element")) +
         table(15, rows) + wrong + (run.largest_score ? line("", score_text(*run.largest_score)) : "");
}

std::string threads_text(const Json& threads) {
  Json mistakes = threads.at("mistakes"), hints = threads.at("hints");
  std::string text =
      line("threads", std::string(mistakes.empty() ? "no race" : "RACE") +
                          (threads.at("complete") ? "" : "; only the first accesses of this large problem were looked at"));
  constexpr std::size_t most = 5;  // one cause has many effects; JSON has them all
  if (hints.size() > most) hints.erase(hints.begin() + most, hints.end());
  if (mistakes.size() > most) {
    const std::string more = "and " + std::to_string(mistakes.size() - most) + " more pairs of lines (--json)";
    mistakes.erase(mistakes.begin() + most, mistakes.end());
    mistakes.push_back(more);
  }
  return text + lines("", mistakes) + lines("diagnosis", hints);
}

std::string time_text(const Json& json) {
  const Json &time = json.at("time"), &percent = json.at("percent_of_peak");
  return line("time", word(time.at("median_ms"), 4) + " ms (median of " + word(time.at("iterations")) + "; min " +
                          word(time.at("min_ms"), 4) + ", max " + word(time.at("max_ms"), 4) +
                          (time.at("cold_l2") ? "; cold L2)" : "; warm L2)")) +
         line("speed", word(json.at("tflops")) + " TFLOP/s" +
                           (percent.is_null() ? ""
                                              : ", " + word(percent) + " % of this device's peak for " +
                                                    word(json.at("problem").at("dtype"))));
}

std::string counts_text(const Json& counters, const Json& predicted) {
  const auto at = [](const Json& of, const char* key) { return of.is_object() ? of.value(key, Json()) : Json(); };
  std::vector<Row> tensors{{"", "bytes read,", "", "bytes written,", "", "32-byte"},
                           {"tensor", "predicted", "counted", "predicted", "counted", "sectors"}};
  const auto add = [&](const std::string& name, const Json& expected, const Json& counted, const Json& sectors) {
    tensors.push_back({name, word(at(expected, "read_bytes")), word(counted.at("read_bytes")),
                       word(at(expected, "written_bytes")), word(counted.at("written_bytes")), word(sectors)});
  };
  const Json nothing{{"read_bytes", 0}, {"written_bytes", 0}};
  const Json expected = predicted.is_null() ? Json::object() : predicted.at("tensors");
  for (const auto& [name, counted] : counters.at("tensors").items()) {
    const Json sectors = counted.at("read_sectors").get<std::uint64_t>() + counted.at("written_sectors").get<std::uint64_t>();
    add(name, predicted.is_null() ? predicted : expected.value(name, nothing), counted, sectors);
  }
  for (const auto& [name, moved] : expected.items()) {
    if (!counters.at("tensors").contains(name)) add(name, moved, nothing, 0);
  }
  add("all", predicted, counters, counters.at("sectors"));
  std::vector<Row> events{{"event", "predicted", "counted"}};
  for (const auto& [event, key] : {std::pair{"sectors of 32 bytes", "sectors"},
                                   {"barriers", "barriers"},
                                   {"warp operations", "warp_operations"},
                                   {"bank conflicts of views", "bank_conflicts"},
                                   {"atomics", "atomics"},
                                   {"tensor-core products", "tensor_core_products"},
                                   {"kernel launches", "launches"},
                                   {"blocks", "blocks"}}) {
    events.push_back({event, word(at(predicted, key)), word(counters.at(key))});
  }
  return line("counts", "of this pass, exact; they are not times") + table(15, tensors) + table(15, events);
}

std::string tiles_text(const Json& tiles) { return tiles.at("br").dump() + "," + tiles.at("bc").dump(); }

/// The words of an array, a comma between them.
std::string joined(const Json& array) {
  std::string text;
  for (const Json& item : array) text += (text.empty() ? "" : ", ") + word(item);
  return text;
}

Json json_of(const TileChoice& choice) {
  Json json = json_of(choice.tiles);
  json.update({{"threads", choice.threads}, {"shared_bytes", choice.shared_bytes}, {"why", choice.why}});
  for (const ThreadPart& part : choice.thread) {
    json["thread"][part.matrix] = {
        {"rows", part.rows}, {"cols", part.cols}, {"lanes", part.lanes}, {"row_run", part.row_run}, {"col_run", part.col_run}};
  }
  return json;
}

/// The tiles of a variant by pass: neighbouring head dimensions that have the same share an entry.
Json tiles_json(const Variant& variant, const FullProblem& given, const std::vector<int>& head_dims,
                const DeviceLimits& limits) {
  Json all = Json::array();
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (variant.tiles == nullptr || (pass == Pass::backward && variant.backward == nullptr)) continue;
    for (const int d : head_dims) {
      if (d > variant.max_head_dim) continue;
      FullProblem problem = given;
      problem.d = d;
      if (!refusal(variant, problem).empty()) problem.dtype = variant.dtypes.front();
      Json choices = Json::array();
      if (refusal_on(variant, problem, limits).empty()) {
        for (const TileChoice& choice : variant.tiles(problem, pass, limits)) choices.push_back(json_of(choice));
      }
      const auto same = [](const Json& x, const Json& y) {
        return x.at("br") == y.at("br") && x.at("bc") == y.at("bc") && x.at("threads") == y.at("threads") &&
               x.at("shared_bytes") == y.at("shared_bytes");
      };
      const auto alike = [&](const Json& x) {
        return x.at("choices").size() == choices.size() &&
               std::equal(choices.begin(), choices.end(), x.at("choices").begin(), same);
      };
      if (!all.empty() && all.back().at("pass") == to_string(pass) && alike(all.back())) {
        all.back().at("head_dims").push_back(d);
      } else {
        all.push_back({{"pass", to_string(pass)}, {"head_dims", {d}}, {"choices", choices}});
      }
    }
  }
  return all;
}

std::string list_text(const Json& json, int sm) {
  std::vector<Row> variants{{"variant", "passes", "dtypes", "kernel"}};
  std::vector<Row> tiles{{"variant", "pass", "d", "tiles Br,Bc on sm_" + std::to_string(sm)}};
  for (const Json& variant : json.at("variants")) {
    variants.push_back(
        {word(variant.at("name")), joined(variant.at("passes")), joined(variant.at("dtypes")), word(variant.at("kernel"))});
    for (const Json& listed : variant.at("tiles")) {
      std::string choices;
      for (const Json& choice : listed.at("choices"))
        choices += choices.empty() ? tiles_text(choice) + " (default)" : "  " + tiles_text(choice);
      if (choices.empty()) choices = "none fits";
      const std::string name = word(variant.at("name")), pass = word(listed.at("pass")), dims = joined(listed.at("head_dims"));
      if (tiles.back()[0] == name && tiles.back()[1] == pass && tiles.back()[3] == choices) {
        tiles.back()[2] += ", " + dims;
      } else {
        tiles.push_back({name, pass, dims, choices});
      }
    }
  }
  std::string text = wrapped(word(json.at("stage")) + ": " + word(json.at("idea")), 2) + "\n";
  std::istringstream rows(table(2, variants, 4));
  std::string row;
  std::getline(rows, row);
  text += row + "\n";
  for (const Json& variant : json.at("variants")) {  // each idea below its variant
    std::getline(rows, row);
    text += row + "\n" + wrapped("      " + word(variant.at("idea")), 6) + "\n";
  }
  return tiles.size() > 1 ? text + table(2, tiles, 4) : text;
}

}  // namespace

std::string report_of(const RunRecord& run, Format format) {
  const Json json = json_of(run);
  if (format == Format::json) return printed(json);
  const auto bytes = [](const Json& number) { return bytes_text(number.get<double>()); };
  const Json &tiles = json.at("tiles"), &predicted = json.at("predicted");
  std::string text = word(json.at("stage")) + ", variant " + word(json.at("variant")) + "\n" + line("idea", json.at("idea")) +
                     line("pass", json.at("pass")) + line("problem", describe(run.problem)) + line("input", input_text(run)) +
                     line("device", device_text(json.at("device")));
  if (!tiles.is_null()) text += line("tiles", "Br=" + tiles.at("br").dump() + " Bc=" + tiles.at("bc").dump());
  text += check_text(run, json);
  if (json.contains("threads")) text += threads_text(json.at("threads"));
  text += lines("wasteful", json.value("remarks", Json()));
  text += line("extra memory", bytes(json.at("extra_memory_bytes")) + " beyond inputs and outputs");
  text += line("must move", bytes(json.at("compulsory_bytes")) + ": each input read once, each output written once");
  if (json.contains("time")) text += time_text(json);
  if (json.contains("counters")) {
    text += counts_text(json.at("counters"), predicted);
  } else if (!predicted.is_null()) {
    text += line("predicted", bytes(predicted.at("read_bytes")) + " read, " + bytes(predicted.at("written_bytes")) +
                                  " written by this kernel; --device cpu counts them");
  }
  return text + lines("saved", json.value("saved", Json()));
}

std::string list_of(const StageInfo& stage, const std::vector<Variant>& list, const FullProblem& problem,
                    const std::vector<int>& head_dims, const DeviceLimits& limits, Format format) {
  Json rows = Json::array();
  for (const Variant& variant : list) {
    Json passes = Json::array({to_string(Pass::forward)}), dtypes = Json::array();
    if (variant.backward != nullptr) passes.push_back(to_string(Pass::backward));
    for (const Dtype dtype : variant.dtypes) dtypes.push_back(to_string(dtype));
    rows.push_back({{"name", variant.name},
                    {"idea", variant.idea},
                    {"passes", passes},
                    {"dtypes", dtypes},
                    {"max_head_dim", variant.max_head_dim},
                    {"refusal", refusal(variant, problem)},
                    {"kernel", variant.file},
                    {"only_if_fastest", variant.only_if_fastest},
                    {"tiles", tiles_json(variant, problem, head_dims, limits)}});
  }
  const Json json{{"stage", stage.name},
                  {"idea", stage.idea},
                  {"options", options_json()},
                  {"problem", json_of(problem)},
                  {"is_plain", problem.is_plain()},
                  {"variants", rows}};
  return format == Format::json ? printed(json) : list_text(json, limits.sm);
}

}  // namespace flash
