#include "common/testing/grid/traffic.hpp"

#include "common/harness/inputs.hpp"
#include "common/harness/runner.hpp"
#include "common/testing/grid/support.hpp"

#include <doctest/doctest.h>

namespace flash::grid {

namespace {

/// Bytes of an element: fp32 but for workspaces that say otherwise, and the tensors of the problem that are in its dtype.
std::uint64_t element_bytes(const Variant& variant, const Problem& problem, Pass pass, const std::string& name) {
  for (const char* tensor : {"Q", "K", "V", "O", "dO", "dQ", "dK", "dV"}) {
    if (name == tensor) return static_cast<std::uint64_t>(size_of(problem.dtype));
  }
  if (variant.workspace != nullptr) {
    for (const WorkspaceSpec& spec : variant.workspace(problem, pass)) {
      if (name == spec.name) return static_cast<std::uint64_t>(size_of(spec.dtype));
    }
  }
  return 4;
}

}  // namespace

void check_traffic(const Variant& variant, const Problem& problem, Pass pass, const Prediction& prediction) {
  Runner runner(device(), variant, problem, make_inputs(problem, InputKind::normal, /*seed=*/1, pass), pass);
  const Counters counters = runner.count();
  std::map<std::string, TensorTraffic> counted;
  for (const TensorTraffic& traffic : counters.traffic) {
    if (traffic.read_bytes + traffic.written_bytes > 0) counted[traffic.tensor] = traffic;
  }
  const std::string what = std::string(variant.name) + " " + to_string(pass) + " on " + describe(problem);
  for (const auto& entry : prediction) {
    const std::string& name = entry.first;  // clang 14: doctest's lambdas cannot capture a structured binding
    const Elements& elements = entry.second;
    const std::uint64_t bytes = element_bytes(variant, problem, pass, name);
    CHECK_MESSAGE(counted[name].read_bytes == bytes * static_cast<std::uint64_t>(elements.read),
                  what << ": " << name << " read");
    CHECK_MESSAGE(counted[name].written_bytes == bytes * static_cast<std::uint64_t>(elements.written),
                  what << ": " << name << " written");
    counted.erase(name);
  }
  for (const auto& entry : counted) CHECK_MESSAGE(false, what << ": " << entry.first << " is not in the prediction");
}

}  // namespace flash::grid
