#include "common/harness/report.hpp"

#include "common/attention/cost.hpp"
#include "common/base/memory.hpp"
#include "common/harness/console.hpp"
#include "common/harness/report_text.hpp"
#include "common/harness/text_table.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace flash {
using namespace report;

namespace {

std::string input_text(const RunRecord& run) {
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

std::string report::device_text(const DeviceInfo& device) {
  if (device.kind == Backend::cpu) {
    return "CPU simulator of sm_" + std::to_string(device.simulates_sm) + " on " + device.name +
           (device.order == "forward" ? "" : ", thread order " + device.order);
  }
  return device.name + ", sm_" + std::to_string(device.sm) + ", CUDA " + device.cuda + ", driver " + device.driver;
}

std::string report::heading_text(const RunRecord& run) {
  return line("pass", to_string(run.pass)) + line("problem", describe(run.problem)) + line("input", input_text(run)) +
         line("device", device_text(run.device));
}

std::string report::worst_text(const TensorCheck& check) {
  const Worst& worst = check.worst;
  std::string text = check.tensor + " is wrong";
  if (check.non_finite > 0) text += " (" + count_text(static_cast<std::uint64_t>(check.non_finite)) + " elements not finite)";
  return text + ", worst at batch " + std::to_string(worst.b) + ", head " + std::to_string(worst.h) + ", row " +
         std::to_string(worst.row) + ", column " + std::to_string(worst.col) + ": got " + number_text(worst.got, 9) +
         ", expected " + number_text(worst.expected, 9);
}

namespace {

std::string check_text(const RunRecord& run) {
  if (!run.check) return line("check", "skipped");
  const CheckReport& check = *run.check;
  std::string text = line("check", std::string(check.passed ? "passed" : "FAILED") + ", against double precision" +
                                       (check.sampled ? ", on a sample of rows" : ", every element"));
  TextTable table({"tensor", "max error", "tolerance", "relative L2", "verdict"});
  for (const TensorCheck& t : check.tensors) {
    table.add({t.tensor, number_text(t.max_abs), number_text(t.tolerance), number_text(t.rel_l2), t.passed ? "ok" : "WRONG"});
  }
  text += table.text(15);
  for (const TensorCheck& t : check.tensors) {
    if (!t.passed) text += line("", worst_text(t));
  }
  if (run.largest_score) text += line("", explanation(*run.largest_score));
  return text;
}

std::string diagnosis_text(const RunRecord& run) {
  if (!run.diagnosis) return "";
  const auto& [mistakes, hints, complete] = *run.diagnosis;
  std::string text = line("threads", std::string(mistakes.empty() ? "no race" : "RACE") +
                                         (complete ? "" : "; only the first accesses of this large problem were looked at"));
  constexpr std::size_t most = 3;  // one cause has many effects; JSON has them all
  for (std::size_t i = 0; i < std::min(mistakes.size(), most); ++i) text += line("", mistakes[i]);
  if (mistakes.size() > most)
    text += line("", "and " + std::to_string(mistakes.size() - most) + " more pairs of lines (--json)");
  for (std::size_t i = 0; i < std::min(hints.size(), most); ++i) text += line(i == 0 ? "diagnosis" : "", hints[i]);
  return text;
}

std::string time_text(const RunRecord& run) {
  const Timing& time = *run.timing;
  std::string text = line("time", number_text(time.median_ms, 4) + " ms (median of " + std::to_string(time.iterations) +
                                      "; min " + number_text(time.min_ms, 4) + ", max " + number_text(time.max_ms, 4) +
                                      (time.cold_l2 ? "; cold L2)" : "; warm L2)"));
  const std::optional<double> percent = percent_of_peak(run);
  return text + line("speed", number_text(tflops(run)) + " TFLOP/s" +
                                  (percent ? ", " + number_text(*percent) + " % of this device's peak for " +
                                                 to_string(run.problem.dtype)
                                           : std::string()));
}

std::string or_dash(std::optional<std::int64_t> n) { return n ? count_text(static_cast<std::uint64_t>(*n)) : "-"; }

std::string counts_text(const Counters& counters, const Prediction& predicted) {
  std::string text = line("counts", "of this pass, exact; they are not times");
  TextTable traffic(
      {"tensor", "bytes read,\npredicted", "counted", "bytes written,\npredicted", "counted", "32-byte\nsectors"});
  const auto add = [&](const std::string& name, const Moved& expected, const TensorTraffic& counted, std::uint64_t sectors) {
    const bool known = !predicted.tensors.empty();
    traffic.add({name, known ? or_dash(expected.read) : "-", count_text(counted.read_bytes),
                 known ? or_dash(expected.written) : "-", count_text(counted.written_bytes), count_text(sectors)});
  };
  MovedTensors left = predicted.tensors;
  for (const TensorTraffic& tensor : counters.traffic) {
    add(tensor.tensor, left[tensor.tensor], tensor, tensor.read_sectors + tensor.written_sectors);
    left.erase(tensor.tensor);
  }
  for (const auto& [name, moved] : left) add(name, moved, {}, 0);
  add("all", sum_of(predicted.tensors), {"", counters.read_bytes(), counters.written_bytes(), 0, 0}, counters.sectors());
  text += traffic.text(15);
  TextTable events({"event", "predicted", "counted"});
  events.add({"sectors of 32 bytes", or_dash(predicted.sectors), count_text(counters.sectors())});
  events.add({"barriers", or_dash(predicted.barriers), count_text(counters.barriers)});
  events.add({"warp operations", or_dash(predicted.warp_operations), count_text(counters.warp_operations)});
  events.add({"bank conflicts of views", "-", count_text(counters.bank_conflicts)});
  events.add({"atomics", "-", count_text(counters.atomics)});
  events.add({"tensor-core products", "-", count_text(counters.tensor_core_products)});
  events.add({"kernel launches", "-", count_text(counters.launches)});
  events.add({"blocks", "-", count_text(counters.blocks)});
  return text + events.text(15);
}

}  // namespace

double tflops(const Problem& problem, Pass pass, const Timing& timing) {
  return timing.median_ms > 0 ? flops(problem, pass) / (timing.median_ms * 1e9) : 0;
}

double tflops(const RunRecord& run) { return run.timing ? tflops(run.problem, run.pass, *run.timing) : 0; }

std::optional<double> percent_of_peak(const RunRecord& run) {
  const double peak = run.problem.dtype == Dtype::fp32 ? run.device.peak_fp32_tflops : run.device.peak_tensor16_tflops;
  if (!run.timing || !(peak > 0)) return std::nullopt;
  return 100 * tflops(run) / peak;
}

std::string text_report(const RunRecord& run) {
  std::string text =
      run.stage.name + ", variant " + run.variant.name + "\n" + line("idea", run.variant.idea) + heading_text(run);
  if (run.tiles) text += line("tiles", "Br=" + std::to_string(run.tiles->Br) + " Bc=" + std::to_string(run.tiles->Bc));
  text += check_text(run) + diagnosis_text(run);
  for (const std::string& remark : run.remarks) text += line(&remark == &run.remarks.front() ? "wasteful" : "", remark);
  text += line("extra memory", bytes_text(static_cast<double>(run.workspace_bytes)) + " beyond inputs and outputs");
  text += line("must move",
               bytes_text(compulsory_bytes(run.problem, run.pass)) + ": each input read once, each output written once");
  if (run.timing) text += time_text(run);
  if (run.counters) {
    text += counts_text(*run.counters, run.predicted);
  } else if (!run.predicted.tensors.empty()) {
    const Moved all = sum_of(run.predicted.tensors);
    text +=
        line("predicted", bytes_text(static_cast<double>(all.read)) + " read, " + bytes_text(static_cast<double>(all.written)) +
                              " written by this kernel; --device cpu counts them");
  }
  for (const std::string& file : run.saved) text += line(&file == &run.saved.front() ? "saved" : "", file);
  return text;
}

std::string list_text(const StageInfo& stage, const std::vector<Variant>& list, const TilesToList& what) {
  TextTable table({"variant", "passes", "dtypes", "kernel"}, std::vector(4, TextTable::Align::left));
  for (const Variant& variant : list) {
    std::string dtypes;
    for (const Dtype dtype : variant.dtypes) dtypes += (dtypes.empty() ? "" : ", ") + std::string(to_string(dtype));
    table.add({variant.name, variant.backward == nullptr ? "forward" : "forward, backward", dtypes, variant.file});
  }
  std::string text = wrapped(stage.name + ": " + stage.idea, 2) + "\n";
  std::istringstream lines(table.text(2));
  std::string row;
  std::getline(lines, row);
  text += row + "\n";
  for (const Variant& variant : list) {  // each idea below its variant
    std::getline(lines, row);
    text += row + "\n" + wrapped("      " + std::string(variant.idea), 6) + "\n";
  }
  TextTable tiles({"variant", "pass", "d", "tiles Br,Bc on sm_" + std::to_string(what.limits.sm)},
                  std::vector(4, TextTable::Align::left));
  bool any = false;
  for (const Variant& variant : list) {
    std::vector<std::string> last;  // its line: neighbouring widths whose tiles read alike share one
    for (const ListedTiles& listed : list_tiles(variant, what)) {
      std::string dims, choices;
      for (const int d : listed.head_dims) dims += (dims.empty() ? "" : ", ") + std::to_string(d);
      for (const TileChoice& choice : listed.choices) {
        choices += choices.empty() ? to_string(choice.tiles) + " (default)" : "  " + to_string(choice.tiles);
      }
      if (choices.empty()) choices = "none fits";
      if (!last.empty() && last[1] == to_string(listed.pass) && last[3] == choices) {
        last[2] += ", " + dims;
        continue;
      }
      if (!last.empty()) tiles.add(last);
      last = {variant.name, to_string(listed.pass), dims, choices};
      any = true;
    }
    if (!last.empty()) tiles.add(last);
  }
  return any ? text + tiles.text(2) : text;
}

}  // namespace flash
