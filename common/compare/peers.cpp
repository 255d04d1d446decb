#include "common/compare/peers.hpp"

#include "common/base/error.hpp"
#include "common/harness/parse.hpp"

namespace flash {

std::vector<std::string> peers_command(const Stage& peers) { return {python(), peers.program.string()}; }

Stage ask_peers(const std::filesystem::path& sources) {
  const std::filesystem::path program = sources / "common" / "compare" / "peers.py";
  const ProcessResult answer = run_process({python(), program.string(), "--list"}, torch_loads_in);
  if (const std::string why = complaint(answer); !why.empty()) {
    const std::string text = "--peers needs Python, torch and a GPU: " + why;
    if (answer.exit_code == 3) throw DeviceError(text);
    throw UsageError(text);
  }
  Stage peers = listed_stage(program, answer.output);
  if (!peers.about.is_object() || !peers.about.contains("device"))
    throw UsageError(program.string() + " does not name its GPU");
  return peers;
}

std::string peers_question(const Run& run, int iterations) {
  return Json{{"variant", run.variant->name},
              {"pass", to_string(run.pass)},
              {"iterations", iterations},
              {"problem", problem_json(*run.task)}}
      .dump();
}

Row peer_row(const Run& run, const ProcessResult& answer) {
  Row row = make_row(*run.stage, *run.variant, run.pass, answer);
  if (row.verdict != Verdict::ok) return row;
  try {
    const Row said = row_from_json(row.report);
    row.verdict = said.verdict;
    row.message = said.message;
  } catch (const UsageError& wrong) {
    row.verdict = Verdict::crashed;
    row.message = std::string("no row: ") + wrong.what();
  }
  return row;
}

}  // namespace flash
