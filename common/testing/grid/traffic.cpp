#include "common/testing/grid/traffic.hpp"

#include "common/harness/inputs.hpp"
#include "common/harness/runner.hpp"
#include "common/testing/grid/support.hpp"

#include <doctest/doctest.h>

#include <array>
#include <map>
#include <string>

namespace flash::grid {

void check_traffic(const Variant& variant, const Problem& problem, Pass pass) {
  const std::string what = std::string(variant.name) + " " + to_string(pass) + " on " + describe(problem);
  const bool has_formulas = variant.predict != nullptr;
  REQUIRE_MESSAGE(has_formulas, "the stage's CMakeLists.txt names no function to PREDICT");
  const Prediction prediction = predicted_bytes(variant, problem, pass, device().limits());
  if (prediction.empty()) {
    MESSAGE("no prediction: " << what);
    return;
  }
  Runner runner(device(), variant, problem, make_inputs(problem, InputKind::normal, /*seed=*/1, pass), pass);
  Prediction counted;
  for (const TensorTraffic& traffic : runner.count().traffic) {
    const Moved moved{static_cast<std::int64_t>(traffic.read_bytes), static_cast<std::int64_t>(traffic.written_bytes)};
    if (moved != Moved{}) counted[traffic.tensor] = moved;
  }
  std::map<std::string, std::array<Moved, 2>> both;
  for (const auto& [name, moved] : prediction) both[name][0] = moved;
  for (const auto& [name, moved] : counted) both[name][1] = moved;
  for (const auto& entry : both) {
    const auto& [expected, got] = entry.second;
    const std::string of_tensor = what + ": " + entry.first + ", predicted | counted: read " + std::to_string(expected.read) +
                                  " | " + std::to_string(got.read) + ", written " + std::to_string(expected.written) + " | " +
                                  std::to_string(got.written);
    const bool equal = expected == got;
    CHECK_MESSAGE(equal, of_tensor);
  }
}

}  // namespace flash::grid
