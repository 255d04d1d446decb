#include "common/testing/grid/traffic.hpp"

#include "common/harness/inputs.hpp"
#include "common/harness/runner.hpp"
#include "common/testing/grid/support.hpp"

#include <doctest/doctest.h>

namespace flash::grid {

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
    CHECK_MESSAGE(counted[name].read_bytes == 4 * static_cast<std::uint64_t>(elements.read), what << ": " << name << " read");
    CHECK_MESSAGE(counted[name].written_bytes == 4 * static_cast<std::uint64_t>(elements.written),
                  what << ": " << name << " written");
    counted.erase(name);
  }
  for (const auto& entry : counted) CHECK_MESSAGE(false, what << ": " << entry.first << " is not in the prediction");
}

}  // namespace flash::grid
