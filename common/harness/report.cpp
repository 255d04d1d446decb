#include "common/harness/report.hpp"

#include "common/harness/console.hpp"
#include "common/harness/report_json.hpp"
#include "common/machine/host_memory.hpp"

#include <algorithm>
#include <cmath>

namespace flash {
using namespace report;

namespace {

std::string input_text(const Heading& run) {
  const std::string source =
      run.load.empty() ? std::string(to_string(run.input)) + ", seed " + std::to_string(run.seed) : "loaded from " + run.load;
  return source + (run.note.empty() ? "" : " (" + run.note + ")");
}

std::string explanation(float largest_score) {
  if (!std::isfinite(largest_score)) {
    return "The scores of that row overflow fp32 themselves: scale * q.k exceeds 3.4e38. "
           "No variant can mend that; a smaller --scale or smaller inputs can.";
  }
  const std::string score =
      number_text(static_cast<double>(largest_score)) + ", and this variant does not subtract the row's max: exp ";
  if (largest_score > 0) {
    return "The scores of that row reach " + score + "overflows in fp32 beyond 88.7. 02_safe_softmax shows the cure.";
  }
  return "The largest score of that row is " + score +
         "underflows in fp32 below -87.3 and is 0 below -104, as if the row saw no key. 02_safe_softmax shows the cure.";
}

}  // namespace

std::string report::line(const char* label, const std::string& text) {
  std::string padded(label);
  padded.resize(13, ' ');
  return wrapped("  " + padded + text, 15) + "\n";
}

std::string report::table_text(std::size_t indent, const std::vector<Column>& columns, const std::vector<Json>& rows,
                               std::vector<TextTable::Align> align) {
  std::vector<std::string> titles;
  for (const Column& column : columns) titles.emplace_back(column.title);
  TextTable table(titles, std::move(align));
  for (const Json& row : rows) {
    std::vector<std::string> cells;
    for (const Column& column : columns) {
      const Json cell = row.value(Json::json_pointer(column.place), Json());
      cells.push_back(cell.is_null()           ? "-"
                      : cell.is_number_float() ? number_text(cell, column.digits)
                      : cell.is_number()       ? count_text(cell)
                                               : word(cell));
    }
    table.add(cells);
  }
  return table.text(indent);
}

std::string report::device_text(const Json& device) {
  const auto of = [&](const char* key) { return word(device.at(key)); };
  if (of("kind") == "cpu") {
    return "CPU simulator of sm_" + of("simulates_sm") + " on " + of("name") +
           (of("order") == "forward" ? "" : ", thread order " + of("order"));
  }
  return of("name") + ", sm_" + of("sm") + ", CUDA " + of("cuda") + ", driver " + of("driver");
}

std::string report::heading_text(const Heading& run, const Json& json) {
  return line("pass", json.at("pass")) + line("problem", describe(run.problem)) + line("input", input_text(run)) +
         line("device", device_text(json.at("device")));
}

std::string report::worst_text(const std::string& tensor, const Json& check) {
  const Json& worst = check.at("worst");
  std::string text = tensor + " is wrong";
  if (check.at("non_finite") > 0) text += " (" + count_text(check.at("non_finite")) + " elements not finite)";
  for (const char* index : {"batch", "head", "row", "column"}) {
    text += std::string(*index == 'b' ? ", worst at " : ", ") + index + " " + word(worst.at(index));
  }
  return text + ": got " + number_text(worst.at("got"), 9) + ", expected " + number_text(worst.at("expected"), 9);
}

namespace {

/// Labelled lines, one for each text; only the first has the label.
std::string lines(const char* label, const Json& texts) {
  std::string text;
  for (const Json& each : texts) text += line(text.empty() ? label : "", each);
  return text;
}

std::string check_text(const RunRecord& run, const Json& json) {
  if (!run.check) return line("check", "skipped");
  const Json& check = json.at("check");
  std::vector<Json> rows;
  std::string wrong;
  for (const auto& [tensor, t] : check.at("tensors").items()) {
    rows.push_back(t);
    rows.back().update({{"tensor", tensor}, {"verdict", t.at("passed") ? "ok" : "WRONG"}});
    if (!t.at("passed")) wrong += line("", worst_text(tensor, t));
  }
  return line("check", std::string(run.check->passed ? "passed" : "FAILED") + ", against double precision" +
                           (check.at("sampled") ? ", on a sample of rows" : ", every element")) +
         table_text(15,
                    {{"tensor", "/tensor"},
                     {"max error", "/max_abs"},
                     {"tolerance", "/tolerance"},
                     {"relative L2", "/rel_l2"},
                     {"verdict", "/verdict"}},
                    rows) +
         wrong + (run.largest_score ? line("", explanation(*run.largest_score)) : "");
}

std::string diagnosis_text(const Json& threads) {
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
  return line("time", number_text(time.at("median_ms"), 4) + " ms (median of " + word(time.at("iterations")) + "; min " +
                          number_text(time.at("min_ms"), 4) + ", max " + number_text(time.at("max_ms"), 4) +
                          (time.at("cold_l2") ? "; cold L2)" : "; warm L2)")) +
         line("speed", number_text(json.at("tflops")) + " TFLOP/s" +
                           (percent.is_null() ? ""
                                              : ", " + number_text(percent) + " % of this device's peak for " +
                                                    word(json.at("problem").at("dtype"))));
}

std::string counts_text(const Json& counters, const Json& predicted) {
  const Json nothing{{"read_bytes", 0}, {"written_bytes", 0}};
  const Json expected = predicted.is_null() ? Json::object() : predicted.at("tensors");
  std::vector<Json> tensors, events;
  for (const auto& [name, counted] : counters.at("tensors").items()) {
    const Json sectors = counted.at("read_sectors").get<std::uint64_t>() + counted.at("written_sectors").get<std::uint64_t>();
    tensors.push_back({{"tensor", name}, {"counted", counted}, {"sectors", sectors}});
    if (!predicted.is_null()) tensors.back()["predicted"] = expected.value(name, nothing);
  }
  for (const auto& [name, moved] : expected.items()) {
    if (counters.at("tensors").contains(name)) continue;
    tensors.push_back({{"tensor", name}, {"counted", nothing}, {"sectors", 0}, {"predicted", moved}});
  }
  tensors.push_back({{"tensor", "all"}, {"counted", counters}, {"sectors", counters.at("sectors")}, {"predicted", predicted}});
  for (const auto& [event, key] : {std::pair{"sectors of 32 bytes", "sectors"},
                                   {"barriers", "barriers"},
                                   {"warp operations", "warp_operations"},
                                   {"bank conflicts of views", "bank_conflicts"},
                                   {"atomics", "atomics"},
                                   {"tensor-core products", "tensor_core_products"},
                                   {"kernel launches", "launches"},
                                   {"blocks", "blocks"}}) {
    const Json known = predicted.is_null() ? Json() : predicted.value(key, Json());
    events.push_back({{"event", event}, {"predicted", known}, {"counted", counters.at(key)}});
  }
  return line("counts", "of this pass, exact; they are not times") +
         table_text(15,
                    {{"tensor", "/tensor"},
                     {"bytes read,\npredicted", "/predicted/read_bytes"},
                     {"counted", "/counted/read_bytes"},
                     {"bytes written,\npredicted", "/predicted/written_bytes"},
                     {"counted", "/counted/written_bytes"},
                     {"32-byte\nsectors", "/sectors"}},
                    tensors) +
         table_text(15, {{"event", "/event"}, {"predicted", "/predicted"}, {"counted", "/counted"}}, events);
}

}  // namespace

std::string report_of(const RunRecord& run, Format format) {
  const Json json = to_json(run);
  if (format == Format::json) return printed(json);
  const auto bytes = [](const Json& number) { return bytes_text(number.get<double>()); };
  std::string text = word(json.at("stage")) + ", variant " + word(json.at("variant")) + "\n" + line("idea", json.at("idea")) +
                     heading_text(run, json);
  const Json &tiles = json.at("tiles"), &predicted = json.at("predicted");
  if (!tiles.is_null()) text += line("tiles", "Br=" + word(tiles.at("br")) + " Bc=" + word(tiles.at("bc")));
  text += check_text(run, json);
  if (json.contains("threads")) text += diagnosis_text(json.at("threads"));
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

}  // namespace flash
