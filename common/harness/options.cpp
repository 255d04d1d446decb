#include "common/harness/options.hpp"

#include "common/harness/parse.hpp"
#include "common/harness/tiles.hpp"

#include <CLI/CLI.hpp>

namespace flash {

const char* to_string(DeviceChoice choice) {
  constexpr const char* names[]{"auto", "gpu", "cpu"};
  return names[static_cast<int>(choice)];
}

CommandLine parse_options(const StageInfo& stage, int argc, const char* const* argv) {
  CommandLine line;
  Options& options = line.options;
  bool no_check = false, no_watch = false;
  CLI::App app(
      stage.name + ": " + stage.idea +
          "\nRuns one attention problem, checks it against double precision and prints a report.\nExit codes: 0 good; 1 "
          "the check failed; 2 bad usage or input; 3 no usable device or not enough memory.",
      stage.name);
  app.set_version_flag("--version", stage.name + " (flash-steps " FLASH_VERSION ")");
  app.set_help_flag("--help,-h", "Print this and exit");
  app.add_flag("--list", options.list, "List the variants and exit; with --json as JSON");

  add_text(app, "--pass", "forward|backward", "Which pass to run; backward runs its own forward first (default: forward)",
           [&](const std::string& given) { options.pass = parse_choice("--pass", given, all_passes); });
  add_name(app, "--variant", "NAME",
           "Which kernel file to run, as in --list (default: on a GPU the fastest, in the simulator the last)",
           options.variant);
  add_problem_options(app, options.problem, default_sizes, default_sizes);
  add_name(
      app, "--load", "DIR",
      "Read q.npy, k.npy, v.npy and, if present, do.npy and bias.npy (NumPy; C order; float16, 32 or 64; shapes (B,H,N,d)). "
      "The shape comes from the files",
      options.load);
  add_name(app, "--save", "DIR",
           "Write o.npy, lse.npy and with backward dq.npy, dk.npy, dv.npy (float32); earlier ones are replaced", options.save);
  add_text(app, "--device", "auto|gpu|cpu", "auto: a GPU if one works, else the CPU simulator (default: auto)",
           [&](const std::string& given) { options.device = parse_choice("--device", given, all_devices); });
  add_text(app, "--tiles", "Br,Bc",
           "Rows of Q and of K, V that a block works on: one of the compiled sizes of the variant (--list shows them)",
           [&](const std::string& given) { options.tiles = parse_tiles("--tiles", given); });
  app.add_flag(
      "--tune", options.tune,
      "Run, check and time all compiled tile sizes, and say which is the default here and why; the CPU simulator counts "
      "instead");
  app.add_flag("--bench", options.bench, "Time the kernels (GPU only)");
  add_text(app, "--iterations", "N", "Timed iterations of --bench and --tune (default: 20)",
           [&](const std::string& given) { options.iterations = parse_int("--iterations", given); });
  app.add_flag("--no-check", no_check, "Skip the comparison with the reference");
  app.add_flag("--no-watch", no_watch, "On the CPU: skip the second run, which looks for races");
  app.add_flag("--json", options.json, "One JSON object on stdout instead of the report");

  line.answer = parse_command_line(app, argc, argv);
  if (!line.answer.empty()) return line;
  options.check = !no_check;
  options.watch = !no_watch;
  check_contradictions(options.problem);
  if (!options.load.empty() && app.count("--input") > 0) {
    throw UsageError("--load and --input are both given; allowed: one of them");
  }
  if (app.count("--iterations") > 0 && !options.bench && !options.tune) {
    throw UsageError("--iterations is given without --bench or --tune, which alone time anything; allowed: both, or neither");
  }
  for (const char* other : {"--tiles", "--bench", "--save"}) {
    if (!options.tune || app.count(other) == 0) continue;
    throw UsageError(std::string("--tune and ") + other +
                     " are both given; allowed: one of them, since --tune runs all tile sizes");
  }
  return line;
}

}  // namespace flash
