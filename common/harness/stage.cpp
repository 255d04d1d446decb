#include "common/harness/stage.hpp"

#include "common/harness/console.hpp"
#include "common/harness/diagnosis.hpp"
#include "common/harness/explanation.hpp"
#include "common/harness/files.hpp"
#include "common/harness/parse.hpp"
#include "common/harness/report.hpp"
#include "common/harness/runner.hpp"
#include "common/harness/select.hpp"
#include "common/harness/tiles.hpp"
#include "common/machine/error.hpp"

#include <cstdlib>
#include <iostream>
#include <utility>

namespace flash {
namespace {

enum ExitCode { good = 0, check_failed = 1 };

/// A run that nothing stands against any more, and its data.
struct Task {
  std::unique_ptr<Device> device;
  Inputs inputs;
  RunRecord run;
};

/// Refuses first whatever can be refused without touching data: a wrong name or pass is wrong on every device.
Task prepare(const StageInfo& stage, Options options) {
  const Variant& listed = choose_variant(stage, options);
  if (!options.problem.dtype) options.problem.dtype = listed.dtypes.front();
  Task task;
  RunRecord& run = task.run;
  const bool load = !options.load.empty();
  if (!load) run.problem = make_problem(options.problem, options.problem.sizes.over(default_sizes));
  task.device = choose_device(options);
  run.device = task.device->info();
  if (load) {
    LoadedInputs loaded = load_inputs(options.load, options.problem, options.pass);
    run.problem = loaded.problem;
    run.note = loaded.note;
    task.inputs = std::move(loaded.inputs);
  }
  const DeviceLimits limits = task.device->limits();
  const Variant* chosen = nullptr;
  if (options.variant.empty() && run.device.kind == Backend::gpu) {
    chosen = fastest_variant(Backend::gpu, run.problem, options.pass, limits);
  }
  if (options.variant.empty() && chosen == nullptr && !knows(listed, run.problem)) {
    chosen = last_that_knows(run.device.kind, run.problem, options.pass);
  }
  const Variant& variant = chosen != nullptr ? *chosen : *find_variant(run.device.kind, listed.name);
  if (options.tiles) require_tiles(variant, "--tiles is " + to_string(*options.tiles));
  if (options.tune) require_tiles(variant, "--tune is given");
  check_variant(variant, run.problem, limits);
  run.tiles = choose_tiles(variant, run.problem, options.pass, limits, options.tiles);
  check_memory(run.device, variant, run.problem, options.pass, load);
  const std::string note = run.device.kind == Backend::cpu ? simulation_note(run.problem, options.pass) : "";
  if (!note.empty()) std::cerr << stage.name << ": " << note << std::endl;
  if (!options.save.empty()) prepare_output_folder(options.save, options.pass, options.load, run.problem.bias_gradient);
  if (!load) task.inputs = make_inputs(run.problem, options.problem.input, options.problem.seed, options.pass);

  run.stage = stage;
  run.variant = variant;
  run.pass = options.pass;
  run.input = options.problem.input;
  run.seed = options.problem.seed;
  run.load = options.load;
  run.predicted = predict(variant, run.problem, run.pass, limits, run.tiles);
  return task;
}

/// Compares the results with the reference, and says of wrong ones why.
void check(RunRecord& run, Runner& runner, const Inputs& inputs, const Results<float>& results, bool watch) {
  const Sample sample = choose_sample(run.problem, run.pass, run.seed);
  run.check = check_results(run.problem, inputs, run.pass, results, sample);
  const bool right = run.check->passed;
  if (!right) run.largest_score = explaining_score(run.variant, run.problem, inputs, *run.check);
  if (right && run.counters) run.remarks = waste(runner.attention(), run.predicted, *run.counters);
  if (watch) run.diagnosis = diagnose(runner, inputs, sample, results, run);
  if (!run.diagnosis) return;
  if (right) {
    if (std::string conflicts = array_conflicts(); !conflicts.empty()) run.remarks.push_back(std::move(conflicts));
  } else {
    const std::string words = only_empty_rows_wrong(run.problem, inputs, run.pass, results);
    if (!words.empty()) run.diagnosis->hints = {words};  // the formulas are right
  }
}

/// Runs every choice of the variant's tile sizes for the pass: checked unless `options.check` is off, then timed on a GPU (a wrong
/// one is not) or counted by the simulator.
TuneRecord tune(Device& device, const Heading& run, const Inputs& inputs, const Options& options) {
  const bool on_cpu = device.info().kind == Backend::cpu;
  TuneRecord record{run, {}};
  std::optional<Checker> checker;  // the reference is the same for all choices
  if (options.check) {
    checker.emplace(run.problem, inputs, run.pass, choose_sample(run.problem, run.pass, options.problem.seed));
  }
  Runner runner(device, run.variant, run.problem, inputs, run.pass);
  record.run.workspace_bytes = runner.workspace_bytes();
  for (const TileChoice& choice : tile_choices(run.variant, run.problem, run.pass, device.limits())) {
    TunedTiles tuned{.choice = choice,
                     .blocks_per_sm = blocks_by_shared_memory(choice, device.limits()),
                     .check = {},
                     .timing = {},
                     .counters = {}};
    runner.use(choice.tiles);
    if (on_cpu) {
      tuned.counters = runner.count();
    } else {
      runner.run();
    }
    if (checker) tuned.check = checker->check(runner.results());
    if (!on_cpu && tuned.passed()) tuned.timing = runner.time(options.iterations, true);
    record.choices.push_back(std::move(tuned));
  }
  return record;
}

ExitCode run_problem(const StageInfo& stage, const Options& options) {
  const auto [device, inputs, prepared] = prepare(stage, options);
  const Format format = options.json ? Format::json : Format::text;
  if (options.tune) {
    const TuneRecord tuned = tune(*device, prepared, inputs, options);
    print(report_of(tuned, format));
    return tuned.passed() ? good : check_failed;
  }
  RunRecord run = prepared;
  Runner runner(*device, run.variant, run.problem, inputs, run.pass, run.tiles);
  run.workspace_bytes = runner.workspace_bytes();
  if (run.device.kind == Backend::cpu) {
    run.counters = runner.count();
  } else {
    runner.run();
  }
  const Results<float> results = runner.results();
  if (!options.save.empty()) {
    save_results(options.save, run.pass, results);
    run.saved = saved_files(options.save, run.pass, run.problem.bias_gradient);
  }
  if (options.check) check(run, runner, inputs, results, options.watch);
  const bool passed = run.passed();
  if (options.bench && passed) run.timing = runner.time(options.iterations, true);  // a wrong kernel's speed is of no interest
  print(report_of(run, format));
  return passed ? good : check_failed;
}

/// For the given problem if the head dimension is given, else for some of them. The device is the one that the simulator stands for.
TilesToList tiles_to_list(const Options& options) {
  std::vector<int> head_dims{32, 64, 96, 128, 256};
  const FullProblem problem = make_problem(options.problem, options.problem.sizes.over(default_sizes));
  if (options.problem.sizes.head_dim) head_dims = {problem.d};
  return {problem, head_dims, open_cpu()->limits()};
}

ExitCode run_command_line(const StageInfo& stage, int argc, char** argv) {
  if (const std::string clash = name_clash(Backend::cpu); !clash.empty()) throw UsageError(clash);
  const CommandLine line = parse_options(stage, argc, argv);
  if (!line.answer.empty()) {
    print(line.answer);
    return good;
  }
  if (line.options.list) {
    if (!line.options.variant.empty()) choose_variant(stage, line.options);  // a wrong name is not passed over
    const TilesToList what = tiles_to_list(line.options);
    print(list_of(stage, variants(Backend::cpu), what, line.options.json ? Format::json : Format::text));
    return good;
  }
  return run_problem(stage, line.options);
}

}  // namespace

int run_stage(const StageInfo& stage, int argc, char** argv) {
  const int code = guarded(stage.name, [&] { return run_command_line(stage, argc, argv); });
#ifdef __EMSCRIPTEN__
  std::exit(code);  // switching fibers has unwound main(), and what it returns is lost
#else
  return code;
#endif
}

}  // namespace flash
