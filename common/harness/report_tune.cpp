// The text report of --tune.
#include "common/harness/report_text.hpp"
#include "common/harness/text_table.hpp"

#include <algorithm>

namespace flash {

using namespace report;

namespace {

/// The columns behind the shared memory: times on a GPU, counts on the CPU.
std::vector<std::string> result_cells(const TuneRecord& record, const TunedTiles& tuned) {
  if (record.run.device.kind == Backend::gpu) {
    const std::string threads = std::to_string(tuned.choice.threads);
    if (!tuned.timing) return {threads, "-", "-"};
    return {threads, number_text(tuned.timing->median_ms, 4),
            number_text(tflops(record.run.problem, record.run.pass, *tuned.timing))};
  }
  const Counters& counters = *tuned.counters;
  return {count_text(counters.read_bytes() + counters.written_bytes()), count_text(counters.sectors()),
          count_text(counters.bank_conflicts), count_text(counters.barriers)};
}

std::string verdict_text(const TuneRecord& record, const TunedTiles& tuned) {
  std::string text = !tuned.check ? "unchecked" : tuned.check->passed ? "ok" : "WRONG";
  if (&tuned == &record.choices.front()) text += ", default";
  if (&tuned == record.fastest()) text += ", fastest";
  return text;
}

/// Which is the default and why, and how much slower than the fastest it is.
std::string default_text(const TuneRecord& record) {
  const TunedTiles& standard = record.choices.front();
  const Problem& p = record.run.problem;
  std::string text = line("default", to_string(standard.choice.tiles) + " for d=" + std::to_string(p.d) + ", " +
                                         (p.causal ? "causal" : "not causal") + ", " + to_string(record.run.pass) + ", on " +
                                         device_text(record.run.device) + ": " + standard.choice.why);
  const TunedTiles* const fastest = record.fastest();
  if (fastest == nullptr || !standard.timing) return text;
  const double percent = 100 * (standard.timing->median_ms / fastest->timing->median_ms - 1);
  const std::string found = fastest == &standard ? "the default"
                                                 : to_string(fastest->choice.tiles) + " (" + fastest->choice.why +
                                                       "); the default takes " + number_text(percent, 2) + " % longer";
  return text + line("fastest", found);
}

}  // namespace

bool TuneRecord::passed() const {
  return std::all_of(choices.begin(), choices.end(), [](const TunedTiles& tuned) { return tuned.passed(); });
}

const TunedTiles* TuneRecord::fastest() const {
  const TunedTiles* best = nullptr;
  for (const TunedTiles& tuned : choices) {
    if (tuned.timing && (best == nullptr || tuned.timing->median_ms < best->timing->median_ms)) best = &tuned;
  }
  return best;
}

std::string text_report(const TuneRecord& record) {
  const RunRecord& run = record.run;
  const bool gpu = run.device.kind == Backend::gpu;
  std::string text = run.stage.name + ", variant " + run.variant.name + ": all compiled tile sizes\n" + heading_text(run);
  text += gpu ? line("times", "median of --iterations, cold L2; blocks per SM: as many as fit by shared memory")
              : line("counts", "of this pass, exact; they are not times; blocks per SM: as many as fit by shared memory");
  std::vector<std::string> header{"Br", "Bc", "shared\nKB", "blocks\nper SM"};
  for (const char* title : {"threads", "median\nms", "TFLOP/s"}) {
    if (gpu) header.emplace_back(title);
  }
  for (const char* title : {"HBM\nbytes", "sectors", "bank\nconflicts", "barriers"}) {
    if (!gpu) header.emplace_back(title);
  }
  header.emplace_back("verdict");
  std::vector<TextTable::Align> align(header.size(), TextTable::Align::right);
  align.back() = TextTable::Align::left;
  TextTable table(header, align);
  for (const TunedTiles& tuned : record.choices) {
    const TileChoice& choice = tuned.choice;
    std::vector<std::string> cells{std::to_string(choice.tiles.Br), std::to_string(choice.tiles.Bc),
                                   number_text(static_cast<double>(choice.shared_bytes) / 1024, 4),
                                   std::to_string(tuned.blocks_per_sm)};
    for (const std::string& cell : result_cells(record, tuned)) cells.push_back(cell);
    cells.push_back(verdict_text(record, tuned));
    table.add(cells);
  }
  text += table.text(2) + default_text(record);
  for (const TunedTiles& tuned : record.choices) {
    if (tuned.passed()) continue;
    for (const TensorCheck& check : tuned.check->tensors) {
      if (!check.passed) text += line("FAILED", "tiles " + to_string(tuned.choice.tiles) + ": " + worst_text(check));
    }
  }
  return text;
}

}  // namespace flash
