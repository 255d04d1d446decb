// The report of a run, for people.
#include "common/attention/cost.hpp"
#include "common/harness/report.hpp"
#include "common/harness/text.hpp"
#include "common/machine/host_memory.hpp"

#include <algorithm>

namespace flash {
namespace {

using Row = std::vector<std::string>;
using std::to_string;

/// "  label        text\n"; a long text goes on below itself.
std::string line(const char* label, const std::string& text) {
  std::string padded(label);
  padded.resize(13, ' ');
  return wrapped("  " + padded + text, 15) + "\n";
}

/// Labelled lines, one for each text; only the first has the label.
std::string lines(const char* label, const std::vector<std::string>& texts) {
  std::string text;
  for (const std::string& each : texts) text += line(text.empty() ? label : "", each);
  return text;
}

std::string device_text(const DeviceInfo& device) {
  if (device.kind == Backend::cpu) {
    return "CPU simulator of sm_" + to_string(device.simulates_sm) + " on " + device.name +
           (device.order == "forward" ? "" : ", thread order " + device.order);
  }
  return device.name + ", sm_" + to_string(device.sm) + ", CUDA " + device.cuda + ", driver " + device.driver;
}

std::string input_text(const RunRecord& run) {
  return (run.load.empty() ? to_string(run.problem.input) + (", seed " + to_string(run.problem.seed))
                           : "loaded from " + run.load) +
         (run.note.empty() ? "" : " (" + run.note + ")");
}

/// The place where a tensor is wrong most. Elements that are not finite are described in words: they are no result.
std::string worst_text(const TensorCheck& check) {
  const auto& [b, h, row, column, got, expected] = check.worst;
  return check.tensor + " is wrong" +
         (check.non_finite > 0 ? " (" + to_string(check.non_finite) + " elements not finite)" : "") + ", worst at batch " +
         to_string(b) + ", head " + to_string(h) + ", row " + to_string(row) + ", column " + to_string(column) + ": got " +
         number_text(got, 9) + ", expected " + number_text(expected, 9);
}

std::string check_text(const RunRecord& run) {
  if (!run.check) return line("check", "skipped");
  std::vector<Row> rows{{"tensor", "max error", "tolerance", "relative L2", "verdict"}};
  std::string wrong;
  for (const TensorCheck& t : run.check->tensors) {
    rows.push_back(
        {t.tensor, number_text(t.max_abs), number_text(t.tolerance), number_text(t.rel_l2), t.passed ? "ok" : "WRONG"});
    if (!t.passed) wrong += line("", worst_text(t));
  }
  return line("check", std::string(run.check->passed ? "passed" : "FAILED") + ", against double precision" +
                           (run.check->sampled ? ", on a sample of rows" : ", every element")) +
         table(15, rows) + wrong;
}

std::string diagnosis_text(const Diagnosis& found) {
  constexpr std::size_t most = 5;  // one cause has many effects; JSON has them all
  std::vector<std::string> mistakes, hints = found.hints;
  for (const BrokenRule& mistake : found.mistakes) mistakes.push_back(mistake.text);
  hints.resize(std::min(hints.size(), most));
  if (mistakes.size() > most) {
    const std::string omitted = "and " + to_string(mistakes.size() - most) + " more pairs of lines (--json)";
    mistakes.resize(most);
    mistakes.push_back(omitted);
  }
  const auto is_read = [](const BrokenRule& mistake) { return mistake.rule == "unwritten_read"; };
  const std::string kind = std::ranges::all_of(found.mistakes, is_read) ? "READ BEFORE THE WRITE" : "RACE";
  const std::string verdicts[] = {"no race", kind, kind + "; one missing barrier can cause all of these: begin with the first"};
  const std::string threads = verdicts[std::min(mistakes.size(), std::size_t{2})] +
                              (found.complete ? "" : "; only the first accesses of this large problem were looked at");
  return (found.watched ? line("threads", threads) : "") + lines("", mistakes) + lines("diagnosis", hints) +
         (found.remark.empty() ? "" : line("wasteful", found.remark));
}

std::string time_text(const RunRecord& run) {
  const Timing& time = *run.timing;
  const double tflops = time.median_ms > 0 ? flops(run.problem, run.pass) / (time.median_ms * 1e9) : 0;
  const double peak = run.problem.dtype == Dtype::fp32 ? run.device.peak_fp32_tflops : run.device.peak_tensor16_tflops;
  return line("time", number_text(time.median_ms, 4) + " ms (median of " + to_string(time.iterations) + "; min " +
                          number_text(time.min_ms, 4) + ", max " + number_text(time.max_ms, 4) + "; cold L2)") +
         line("speed", number_text(tflops) + " TFLOP/s" +
                           (peak > 0 ? ", " + number_text(100 * tflops / peak) + " % of this device's peak for " +
                                           to_string(run.problem.dtype)
                                     : ""));
}

/// "-" for what is not predicted.
std::string predicted_text(std::optional<std::int64_t> count) {
  return count ? count_text(static_cast<std::uint64_t>(*count)) : "-";
}

std::string counts_text(const Counters& counters, const Prediction& predicted) {
  std::vector<Row> tensors{{"", "bytes read,", "", "bytes written,", "", "32-byte"},
                           {"tensor", "predicted", "counted", "predicted", "counted", "sectors"}};
  const auto add = [&](const TensorTraffic& counted, const MemoryTraffic& moved) {
    const auto expected = [&](std::int64_t bytes) {
      return predicted_text(predicted.tensors.empty() ? std::nullopt : std::optional(bytes));
    };
    tensors.push_back({counted.tensor, expected(moved.read), count_text(counted.read_bytes), expected(moved.written),
                       count_text(counted.written_bytes), count_text(counted.read_sectors + counted.written_sectors)});
  };
  TrafficByTensor not_counted = predicted.tensors;
  for (const TensorTraffic& counted : counters.traffic) {
    const auto found = not_counted.extract(counted.tensor);
    add(counted, found.empty() ? MemoryTraffic{} : found.mapped());
  }
  for (const auto& [name, moved] : not_counted) add({.tensor = name}, moved);
  add({"all", counters.read_bytes(), counters.written_bytes(), counters.sectors()}, sum_of(predicted.tensors));
  std::vector<Row> events{{"event", "predicted", "counted"}};
  const auto event = [&](const char* name, std::uint64_t counted, std::optional<std::int64_t> expected = {}) {
    events.push_back({name, predicted_text(expected), count_text(counted)});
  };
  event("sectors of 32 bytes", counters.sectors(), predicted.sectors);
  event("barriers", counters.barriers, predicted.barriers);
  event("warp operations", counters.warp_operations, predicted.warp_operations);
  event("bank conflicts of views", counters.bank_conflicts);
  event("atomics", counters.atomics);
  event("tensor-core products", counters.tensor_core_products);
  event("kernel launches", counters.launches);
  event("blocks", counters.blocks);
  return line("counts", "of this pass, exact; they are not times") + table(15, tensors) + table(15, events);
}

}  // namespace

std::string text_of(const RunRecord& run) {
  const auto bytes = [](auto number) { return bytes_text(static_cast<double>(number)); };
  std::string text = run.stage.name + ", variant " + run.variant.name + "\n" + line("idea", run.variant.idea) +
                     line("pass", to_string(run.pass)) + line("problem", describe(run.problem)) +
                     line("input", input_text(run)) + line("device", device_text(run.device));
  if (run.tiles) text += line("tiles", "Br=" + to_string(run.tiles->Br) + " Bc=" + to_string(run.tiles->Bc));
  text += check_text(run) + diagnosis_text(run.diagnosis);
  text += line("extra memory", bytes(run.workspace_bytes) + " beyond inputs and outputs");
  text +=
      line("must move", bytes(compulsory_bytes(run.problem, run.pass)) + ": each input read once, each output written once");
  if (run.timing) text += time_text(run);
  if (run.counters) {
    text += counts_text(*run.counters, run.predicted);
  } else if (!run.predicted.tensors.empty()) {
    const MemoryTraffic moved = sum_of(run.predicted.tensors);
    text += line("predicted",
                 bytes(moved.read) + " read, " + bytes(moved.written) + " written by this kernel; --device cpu counts them");
  }
  return text + lines("saved", run.saved);
}

}  // namespace flash
