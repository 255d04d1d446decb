// Runs each race case in a process of its own, since a report ends it, and looks at what ThreadSanitizer says. With a case's name as its
// argument this program is that process.
#include "common/simt/test/zoo_race.hpp"
#include "common/simt/test/zoo.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

namespace flash {
namespace {

std::string this_program;

struct Outcome {
  int exit_code;
  std::string output;
};

Outcome run_alone(const std::string& name) {
  Outcome outcome{-1, ""};
  std::FILE* const pipe = popen(("'" + this_program + "' --race-case=" + name + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> part;
  while (const std::size_t bytes = std::fread(part.data(), 1, part.size(), pipe)) outcome.output.append(part.data(), bytes);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

constexpr int race_found = 66;  // ThreadSanitizer's exit code

}  // namespace

TEST_CASE("zoo: races") {
  const std::string file = std::string(__FILE__).substr(0, std::string(__FILE__).rfind('/')) + "/zoo_race.cpp";
  for (const RaceCase& each : race_cases()) {
    const Outcome outcome = run_alone(each.name);
    CAPTURE(each.name);
    CAPTURE(outcome.output);
    CHECK(outcome.exit_code == (each.is_bug ? race_found : 0));
    if (!each.is_bug) continue;
    CHECK(has(outcome.output, {"data race"}));
    CHECK(has(outcome.output, {bug(file, each.name + ", write")}));
    const bool one_line = each.name == "global_update" || each.name == "between_blocks";
    if (!one_line) CHECK(has(outcome.output, {bug(file, each.name + ", read")}));
  }
}

}  // namespace flash

int main(int argc, char** argv) {
  const std::string option = "--race-case=", argument = argc > 1 ? argv[1] : "";
  if (argument.starts_with(option)) return flash::run_race_case(argument.substr(option.size())) ? 0 : 2;
  std::array<char, 4096> path{};
  if (readlink("/proc/self/exe", path.data(), path.size() - 1) < 0) return 1;
  flash::this_program = path.data();
  return doctest::Context(argc, argv).run();
}
