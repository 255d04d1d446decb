#include "common/harness/tune.hpp"

#include "common/harness/runner.hpp"
#include "common/harness/tiles.hpp"

namespace flash {

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

}  // namespace flash
