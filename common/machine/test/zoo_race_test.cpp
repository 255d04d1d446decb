// Runs each race case alone and looks at what ThreadSanitizer says.
#include "common/machine/test/zoo_race.hpp"
#include "common/machine/test/alone.hpp"
#include "common/machine/test/zoo.hpp"

namespace flash {
namespace {

constexpr int race_found = 66;  // ThreadSanitizer's exit code

}  // namespace

TEST_CASE("zoo: races") {
  const std::string folder = std::string(__FILE__).substr(0, std::string(__FILE__).rfind('/') + 1);
  for (const RaceCase& each : race_cases()) {
    // Blocks that happen to run one after another on one thread of the CPU do not race: then once more.
    Outcome outcome = run_alone(each.name);
    for (int again = 0; each.is_bug && outcome.exit_code == 0 && again < 9; ++again) outcome = run_alone(each.name);
    CAPTURE(each.name);
    CAPTURE(outcome.output);
    CHECK(outcome.exit_code == (each.is_bug ? race_found : 0));
    if (!each.is_bug) continue;
    CHECK(has(outcome.output, {"data race"}));
    CHECK(has(outcome.output, {bug(folder + each.file, each.name + ", write")}));
    const bool one_line = each.name == "global_update" || each.name == "between_blocks";
    if (!one_line) CHECK(has(outcome.output, {bug(folder + each.file, each.name + ", read")}));
  }
}

}  // namespace flash

int main(int argc, char** argv) {
  const std::string name = flash::name_to_run_alone(argc, argv);
  if (!name.empty()) return flash::run_race_case(name) ? 0 : 2;
  return doctest::Context(argc, argv).run();
}
