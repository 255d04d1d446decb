#include "common/grid/prediction.hpp"

#include "common/grid/support.hpp"
#include "common/harness/inputs.hpp"
#include "common/harness/runner.hpp"

#include <doctest/doctest.h>

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace flash::grid {

void check_counts(const Variant& variant, const FullProblem& problem, Pass pass, std::optional<Tiles> tiles,
                  const Counters& counters) {
  const std::string what = std::string(variant.name) + " " + to_string(pass) + " on " + describe(problem) +
                           (tiles ? ", tiles " + std::to_string(tiles->Br) + " x " + std::to_string(tiles->Bc) : "");
  const Prediction prediction = predict(variant, problem, pass, device().limits(), tiles);
  if (prediction.tensors.empty()) {
    static std::set<std::string> said;
    if (said.insert(variant.name).second) MESSAGE("no prediction: " << what);
    return;
  }
  std::map<std::string, std::array<std::int64_t, 2>> both;  // predicted, counted
  for (const auto& [name, moved] : prediction.tensors) {
    both[name + " read"][0] = moved.read;
    both[name + " written"][0] = moved.written;
  }
  for (const TensorTraffic& traffic : counters.traffic) {
    both[traffic.tensor + " read"][1] = static_cast<std::int64_t>(traffic.read_bytes);
    both[traffic.tensor + " written"][1] = static_cast<std::int64_t>(traffic.written_bytes);
  }
  const auto add = [&](const char* name, std::optional<std::int64_t> expected, std::uint64_t counted) {
    if (expected) both[name] = {*expected, static_cast<std::int64_t>(counted)};
  };
  add("sectors", prediction.sectors, counters.sectors());
  add("barriers", prediction.barriers, counters.barriers);
  add("warp operations", prediction.warp_operations, counters.warp_operations);
  for (const auto& entry : both) {
    const auto& [expected, counted] = entry.second;
    const bool equal = expected == counted;
    const std::string both_of_it =
        what + ": " + entry.first + ": predicted " + std::to_string(expected) + ", counted " + std::to_string(counted);
    CHECK_MESSAGE(equal, both_of_it);
  }
}

void check_prediction(const Variant& variant, const FullProblem& problem, Pass pass, std::optional<Tiles> tiles) {
  const bool has_formulas = variant.predict != nullptr;
  REQUIRE_MESSAGE(has_formulas, "the stage's CMakeLists.txt names no function to PREDICT");
  Runner runner(device(), variant, problem, make_inputs(problem, InputKind::normal, /*seed=*/1, pass), pass, tiles);
  check_counts(variant, problem, pass, tiles, runner.count());
}

}  // namespace flash::grid
