#include "common/compare/run.hpp"

#include "common/attention/cost.hpp"
#include "common/device/error.hpp"

#include <algorithm>

namespace flash {
namespace {

/// Multiply-adds that the simulator does in some seconds.
constexpr double simulated_in_seconds = 1e9;

void append(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

/// What a row says about its problem if the program could not.
Json problem_json(const Problem& p) {
  return {{"batch", p.B},
          {"heads", p.H},
          {"kv_heads", p.Hkv},
          {"seq_q", p.Nq},
          {"seq_k", p.Nk},
          {"head_dim", p.d},
          {"causal", p.causal},
          {"bias", to_string(p.bias)},
          {"dtype", to_string(p.dtype)},
          {"layout", to_string(p.layout)}};
}

/// Is the variant's pass worth a row? In a stage that has both, steps of the backward pass borrow the forward pass of another step.
bool is_about(const Stage& stage, const ListedVariant& variant, Pass pass) {
  const auto forward_alone = [](const ListedVariant& other) { return !other.has(Pass::backward); };
  const bool borrowed = pass == Pass::forward && variant.has(Pass::backward) &&
                        std::any_of(stage.variants.begin(), stage.variants.end(), forward_alone);
  return variant.has(pass) && !borrowed;
}

std::vector<std::string> stage_arguments(const Stage& stage, const std::string& variant, Pass pass, const char* device) {
  return {stage.program.string(), "--variant", variant, "--pass", to_string(pass), "--device", device, "--json"};
}

}  // namespace

Backend choose_backend(const CompareOptions& options, const Stage& first) {
  if (options.device == DeviceChoice::cpu) return Backend::cpu;
  const ProcessResult probe = run_process({first.program.string(), "--device", "gpu", "--batch", "1", "--heads", "1", "--seq",
                                           "1", "--head-dim", "1", "--no-check", "--json"},
                                          options.time_limit);
  const bool works = probe.started && !probe.timed_out && probe.signal == 0 && probe.exit_code == 0;
  if (works) return Backend::gpu;
  if (options.device == DeviceChoice::gpu) {
    throw DeviceError("--device is gpu, but it does not work: " + probe.error.substr(0, probe.error.find('\n')));
  }
  return Backend::cpu;
}

void count_traffic(Row& row, const Stage& stage, const CompareOptions& options, const RequestedSizes& sizes, Backend backend) {
  double groups = 1;
  Row counted = row;
  if (backend == Backend::gpu) {
    const std::int64_t kv_heads = sizes.kv_heads == 0 ? sizes.heads : sizes.kv_heads;
    RequestedSizes part = sizes;
    part.batch = 1;
    part.heads = sizes.heads / kv_heads;
    part.kv_heads = 1;
    const Problem problem = make_problem(options.problem, part);
    if (flops(problem, row.pass) / 2 > simulated_in_seconds) return;
    std::vector<std::string> arguments = stage_arguments(stage, row.variant, row.pass, "cpu");
    append(arguments, to_arguments(options.problem, part));
    if (const std::optional<std::string> tiles = row.tiles()) append(arguments, {"--tiles", *tiles});  // what the GPU ran
    arguments.emplace_back("--no-check");
    const ProcessResult result = run_process(arguments, options.time_limit);
    counted.report = Json::parse(result.output, nullptr, false);
    groups = static_cast<double>(sizes.batch) * static_cast<double>(kv_heads);
  }
  for (const char* direction : {"read_bytes", "written_bytes"}) {
    const std::optional<double> bytes = counted.number({"counters", direction});
    if (bytes) row.report[std::string("hbm_") + direction] = static_cast<std::uint64_t>(*bytes * groups);
  }
}

std::vector<Row> run_pass(const CompareOptions& options, const std::vector<Stage>& stages, const RequestedSizes& sizes,
                          Pass pass, Backend backend, std::ostream& progress) {
  std::vector<Row> rows;
  for (const Stage& stage : stages) {
    for (const ListedVariant& variant : stage.variants) {
      if (!is_about(stage, variant, pass) || !variant.takes(*options.problem.dtype)) continue;
      progress << to_string(pass) << " " << stage.name << "/" << variant.name << " ... " << std::flush;
      std::vector<std::string> arguments = stage_arguments(stage, variant.name, pass, backend == Backend::gpu ? "gpu" : "cpu");
      append(arguments, to_arguments(options.problem, sizes));
      if (backend == Backend::gpu) append(arguments, {"--bench", "--iterations", std::to_string(options.iterations)});
      Row row = make_row(stage, variant, pass, run_process(arguments, options.time_limit));
      if (!row.report.contains("problem")) row.report["problem"] = problem_json(make_problem(options.problem, sizes));
      if (row.verdict == Verdict::ok) count_traffic(row, stage, options, sizes, backend);
      progress << to_string(row.verdict) << (row.message.empty() ? "" : ": " + row.message) << std::endl;
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace flash
