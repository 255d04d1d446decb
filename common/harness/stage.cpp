#include "common/harness/stage.hpp"

#include "common/attention/cost.hpp"
#include "common/attention/registry.hpp"
#include "common/harness/command_line.hpp"
#include "common/harness/diagnosis.hpp"
#include "common/harness/files.hpp"
#include "common/harness/inputs.hpp"
#include "common/harness/report.hpp"
#include "common/harness/runner.hpp"
#include "common/harness/text.hpp"
#include "common/machine/error.hpp"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <utility>

namespace flash {
namespace {

/// The device of --device. auto takes a GPU if one works and the stage was built for it, else the CPU. DeviceError with the reason if a GPU is
/// demanded and there is none; UsageError if --bench would have to time the CPU.
std::unique_ptr<Device> choose_device(const Request& request) {
  std::string why_not;
  if (request.device != DeviceChoice::cpu) {
    std::unique_ptr<Device> gpu = open_gpu(why_not);
    if (gpu) return gpu;
    if (request.device == DeviceChoice::gpu) throw DeviceError("--device is gpu, but " + why_not + "; allowed here: auto, cpu");
  }
  if (request.bench) {
    throw UsageError(
        "--bench needs a GPU" + (why_not.empty() ? "" : " (" + why_not + ")") +
        ": the CPU simulates kernels to count and check, its times mean nothing; leave --bench out for the counts");
  }
  return open_cpu();
}

/// A run that nothing stands against any more, and its data.
struct PreparedRun {
  std::unique_ptr<Device> device;
  Inputs inputs;
  RunRecord run;
};

/// Refuses first whatever can be refused without touching data: a wrong name or pass is wrong on every device.
PreparedRun prepare(const StageInfo& stage, Request request) {
  const std::vector<Variant>& all = variants(Backend::cpu);  // every kernel is built for the CPU
  const Variant& listed = request.variant.empty() ? all.front() : variant_named(Backend::cpu, request.variant);
  request.problem.try_emplace("--dtype", to_string(listed.dtypes.front()));
  PreparedRun prepared;
  RunRecord& run = prepared.run;
  run.pass = request.pass.value_or(has_own_pass(listed, Pass::forward) ? Pass::forward : Pass::backward);
  const bool has_backward = std::ranges::any_of(all, [](const Variant& v) { return v.backward != nullptr; });
  const std::string lacks_backward = ", but " + stage.name + " has no backward pass" +
                                     (stage.backward_stage.empty() ? "" : ". " + stage.backward_stage + " has one");
  if (run.pass == Pass::backward && !has_backward) throw UsageError("--pass is backward" + lacks_backward);
  const bool load = !request.load.empty();
  if (!load) run.problem = make_problem(request.problem);
  prepared.device = choose_device(request);
  run.device = prepared.device->info();
  if (load) {
    LoadedInputs loaded = load_inputs(request.load, request.problem, run.pass);
    run.problem = loaded.problem;
    run.note = loaded.note;
    prepared.inputs = std::move(loaded.inputs);
  }
  if (run.pass == Pass::forward && run.problem.bias_gradient)
    throw UsageError("--bias-gradient needs --pass backward" + (has_backward ? "" : lacks_backward));
  const DeviceLimits limits = prepared.device->limits();
  const Variant& variant = choose_variant(run.device.kind, request.variant, run.problem, run.pass, limits);
  const PassPlan plan = plan_pass(variant, run.problem, run.pass, limits, request.tiles);
  if (variant.tiles != nullptr) run.tiles = plan.choice.tiles;
  check_memory(run.device, variant, run.problem, run.pass, load);
  constexpr double simulated_in_seconds = 1e10;  // FLOPs
  if (run.device.kind == Backend::cpu && flops(run.problem, run.pass) > simulated_in_seconds)
    std::cerr << stage.name << ": the CPU simulator may take minutes for this problem" << std::endl;
  if (!request.save.empty()) prepare_output_folder(request.save, run.problem, run.pass, request.load);
  if (!load) prepared.inputs = make_inputs(run.problem, run.pass);

  run.stage = stage;
  run.variant = variant;
  if (!has_own_pass(variant, run.pass))
    run.variant.file = "", run.variant.idea = "another step's forward pass, which this step runs before its own backward pass";
  run.load = request.load;
  run.predicted = predict(variant, run.problem, run.pass, limits, run.tiles);
  return prepared;
}

/// Compares the results with the reference, and says of wrong ones why.
void check(RunRecord& run, Runner& runner, const Inputs& inputs, const Results<float>& results, bool watch) {
  const Sample sample = choose_sample(run.problem, run.pass, run.problem.seed);
  run.check = Checker(run.problem, inputs, run.pass, sample).check(results);
  if (const std::string score = score_out_of_range(run.variant, run.problem, inputs, *run.check); !score.empty())
    run.diagnosis.hints = {score};
  if (watch) diagnose(runner, inputs, sample, results, run);
}

/// The exit code.
int run_problem(const StageInfo& stage, const Request& request) {
  auto [device, inputs, run] = prepare(stage, request);
  Runner runner(*device, run.variant, run.problem, inputs, run.pass, run.tiles);
  run.workspace_bytes = runner.workspace_bytes();
  if (run.device.kind == Backend::cpu) {
    run.counters = runner.count();
  } else {
    runner.run();
  }
  const Results<float> results = runner.results();
  if (!request.save.empty()) {
    save_results(request.save, results);
    run.saved = saved_files(request.save, run.problem, run.pass);
  }
  if (request.check) check(run, runner, inputs, results, request.watch);
  if (request.bench && run.passed()) run.timing = runner.time(request.iterations);  // a wrong kernel's speed is of no interest
  print(request.json ? json_of(run) : text_of(run));
  return run.passed() ? 0 : 1;
}

/// For the given head dimension, else for some, on a GPU if --device says so, else on the one that the simulator stands for.
std::string list(const StageInfo& stage, const Request& request) {
  if (!request.variant.empty()) variant_named(Backend::cpu, request.variant);  // a wrong name is not passed over
  const FullProblem problem = make_problem(request.problem);
  const bool given = request.problem.contains("--head-dim");
  return list_of(stage, variants(Backend::cpu), problem, given ? std::vector{problem.d} : std::vector{32, 64, 96, 128, 256},
                 (request.device == DeviceChoice::gpu ? choose_device(request) : open_cpu())->limits(), request.json);
}

}  // namespace

int run_stage(const StageInfo& stage, int argc, char** argv) {
  const int code = exit_code_of(stage.name, [&] {
    variants(Backend::cpu);  // two may have the same name
    const Request request = parse_command_line(stage, argc, argv);
    if (request.answer.empty() && !request.list) return run_problem(stage, request);
    print(request.answer.empty() ? list(stage, request) : request.answer);
    return 0;
  });
#ifdef __EMSCRIPTEN__
  std::exit(code);  // switching fibers has unwound main(), and what it returns is lost
#else
  return code;
#endif
}

}  // namespace flash
