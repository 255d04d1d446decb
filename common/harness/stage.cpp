#include "common/harness/stage.hpp"

#include "common/base/error.hpp"
#include "common/harness/console.hpp"
#include "common/harness/diagnosis.hpp"
#include "common/harness/empty_rows.hpp"
#include "common/harness/files.hpp"
#include "common/harness/parse.hpp"
#include "common/harness/pending_file.hpp"
#include "common/harness/report.hpp"
#include "common/harness/runner.hpp"
#include "common/harness/select.hpp"
#include "common/harness/tiles.hpp"
#include "common/harness/tune.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <new>
#include <utility>

namespace flash {
namespace {

enum ExitCode { good = 0, check_failed = 1, bad_usage = 2, no_device = 3 };

/// The largest visible score of one row, with its bias; infinite or NaN if fp32 cannot hold it. Absent if the row sees no key.
std::optional<float> largest_score_of(const Problem& p, const Inputs& inputs, const Worst& at) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::optional<float> largest;
  for (int j = 0; j < p.visible_keys(at.row); ++j) {
    float dot = 0;
    for (int c = 0; c < p.d; ++c) dot += inputs.Q(at.b, at.h, at.row, c) * inputs.K(at.b, p.kv_head(at.h), j, c);
    float bias = 0;
    if (p.bias == BiasKind::alibi) {
      bias = -inputs.bias(at.b, at.h, 0, 0) * static_cast<float>(std::abs(at.row + p.Nk - p.Nq - j));
    } else if (p.bias != BiasKind::none) {
      bias = inputs.bias(at.b, at.h, at.row, j);
    }
    if (bias == -infinity) continue;  // masked
    const float score = p.scale * dot + bias;
    if (std::isnan(score)) return score;
    largest = std::max(largest.value_or(-infinity), score);
  }
  return largest;
}

/// The largest score of the row where O or L is wrong most, if that score explains it (see RunRecord::largest_score).
std::optional<float> explaining_score(const RunRecord& run, const Inputs& inputs) {
  if (!run.check) return std::nullopt;
  for (const TensorCheck& tensor : run.check->tensors) {
    if (tensor.passed || (tensor.tensor != "o" && tensor.tensor != "lse")) continue;
    const std::optional<float> largest = largest_score_of(run.problem, inputs, tensor.worst);
    if (!largest) continue;
    if (!std::isfinite(*largest)) return largest;
    if (run.variant.subtracts_max) continue;
    const bool overflows = tensor.non_finite > 0 && *largest > exp_overflows_beyond;
    if (overflows || *largest < exp_underflows_below) return largest;
  }
  return std::nullopt;
}

ExitCode run_problem(const StageInfo& stage, Options options) {
  // Everything that can be refused without touching data comes first.
  // A wrong name or pass is wrong on every device, and every kernel is built for the CPU.
  const Variant& listed = choose_variant(stage, variants(Backend::cpu), options);
  if (!options.problem.dtype) options.problem.dtype = listed.dtypes.front();
  const RequestedSizes sizes = options.problem.sizes.over(default_sizes);
  const bool load = !options.load.empty();
  Problem problem;
  if (!load) problem = make_problem(options.problem, sizes);
  const std::unique_ptr<Device> device = choose_device(options);
  const Variant& variant = choose_variant(stage, variants(device->info().kind), options);

  const std::vector<Variant>& list = variants(device->info().kind);
  if (options.tiles) require_tiles(list, variant, "--tiles is " + to_string(*options.tiles));
  if (options.tune) require_tiles(list, variant, "--tune is given");

  LoadedInputs task;
  if (load) {
    task = load_inputs(options.load, options.problem, options.pass);
    problem = task.problem;
    if (options.seed_given && task.note.empty()) {
      throw UsageError("--load and --seed are both given, but the files leave nothing to be random; allowed: one of them");
    }
  }
  check_variant(stage, variant, problem, device->limits());
  const std::optional<Tiles> tiles = choose_tiles(variant, problem, options.pass, device->limits(), options.tiles);
  check_memory(device->info(), variant, problem, options.pass, load);
  const bool on_cpu = device->info().kind == Backend::cpu;
  if (const std::string note = on_cpu ? simulation_note(problem, options.pass) : ""; !note.empty()) {
    std::cerr << stage.name << ": " << note << std::endl;
  }
  if (!options.save.empty()) prepare_output_folder(options.save, options.pass, options.load);
  if (!load) task.inputs = make_inputs(problem, options.problem.input, options.problem.seed, options.pass);

  RunRecord run{.stage = stage,
                .variant = variant,
                .pass = options.pass,
                .device = device->info(),
                .problem = problem,
                .input = options.problem.input,
                .seed = options.problem.seed,
                .load = options.load,
                .note = task.note,
                .tiles = tiles,
                .workspace_bytes = 0,
                .check = {},
                .largest_score = {},
                .diagnosis = {},
                .remarks = {},
                .timing = {},
                .counters = {},
                .predicted = predict(variant, problem, options.pass, device->limits(), tiles),
                .saved = {}};
  const Format format = options.json ? Format::json : Format::text;
  if (options.tune) {
    const TuneRecord tuned = tune(*device, run, task.inputs, options);
    print(report_of(tuned, format));
    return tuned.passed() ? good : check_failed;
  }
  Runner runner(*device, variant, problem, task.inputs, options.pass, tiles);
  run.workspace_bytes = runner.workspace_bytes();
  if (on_cpu) {
    run.counters = runner.count();
  } else {
    runner.run();
  }
  const Results<float> results = runner.results();
  if (!options.save.empty()) {
    save_results(options.save, options.pass, results);
    run.saved = saved_files(options.save, options.pass);
  }
  if (options.check) {
    const Sample sample = choose_sample(problem, options.pass, options.problem.seed);
    run.check = check_results(problem, task.inputs, options.pass, results, sample);
    run.largest_score = explaining_score(run, task.inputs);
    if (run.counters && run.check->passed) run.remarks = waste(runner.attention(), run.predicted, *run.counters);
    if (options.watch) run.diagnosis = diagnose(runner, task.inputs, sample, results, run);
    if (run.diagnosis && run.check->passed) {
      if (std::string conflicts = array_conflicts(); !conflicts.empty()) run.remarks.push_back(std::move(conflicts));
    }
    if (run.diagnosis && !run.check->passed) {
      const std::string words = only_empty_rows_wrong(problem, task.inputs, options.pass, results);
      if (!words.empty()) run.diagnosis->hints.insert(run.diagnosis->hints.begin(), words);
    }
  }
  const bool passed = run.passed();
  // A wrong kernel's speed is of no interest.
  if (options.bench && passed) run.timing = runner.time(options.iterations, true);

  print(report_of(run, format));
  return passed ? good : check_failed;
}

/// For the given problem if the head dimension is given, else for some of them. The device is the one that the simulator stands for.
TilesToList tiles_to_list(const Options& options) {
  const RequestedSizes sizes = options.problem.sizes.over(default_sizes);
  std::vector<int> head_dims{32, 64, 96, 128, 256};
  const Problem problem = make_problem(options.problem, sizes);
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
    const std::vector<Variant>& list = variants(Backend::cpu);                     // every kernel is built for the CPU
    if (!line.options.variant.empty()) choose_variant(stage, list, line.options);  // a wrong name is not passed over
    const TilesToList what = tiles_to_list(line.options);
    print(list_of(stage, list, what, line.options.json ? Format::json : Format::text));
    return good;
  }
  return run_problem(stage, line.options);
}

}  // namespace

int run_stage(const StageInfo& stage, int argc, char** argv) {
  let_large_writes_fail();
  const auto complain = [&](const std::string& message, ExitCode code) {
    std::cerr << stage.name << ": " << one_line(message) << std::endl;
    return code;
  };
  try {
    return run_command_line(stage, argc, argv);
  } catch (const UsageError& error) {
    return complain(error.what(), bad_usage);
  } catch (const DeviceError& error) {
    return complain(error.what(), no_device);
  } catch (const std::bad_alloc&) {
    return complain("not enough main memory for this problem", no_device);
  } catch (const KernelError& error) {
    return complain(error.what(), check_failed);
  } catch (const std::exception& error) {
    return complain(std::string("internal error: ") + error.what(), check_failed);
  }
}

}  // namespace flash
