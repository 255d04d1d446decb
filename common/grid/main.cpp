// main() of the stages' test programs: doctest with --device=cpu (the default) or --device=gpu. Without a GPU the latter exits
// with 77, which CTest shows as skipped; so do cases that run nothing here. --variant=NAME: cases that look at all variants of the
// stage look at this one alone. For a failed case it prints the command that runs the stage on the same problem; try.sh runs it.
#include "common/attention/option_table.hpp"
#include "common/grid/support.hpp"
#include "common/harness/runner.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <regex>
#include <span>
#include <string>
#include <string_view>

namespace flash::grid {
namespace {

std::unique_ptr<Device> chosen_device;
std::string chosen_variant;
bool any_idle = false, any_worked = false;

/// "" if the program belongs to no stage.
std::string command_for(const LastRun& run) {
  const std::string file = variants().front().file, stage = file.substr(0, file.find('_'));
  if (stage.empty()) return "";
  const bool gpu = device().info().kind == Backend::gpu;
  std::string command;
  if (!gpu && run.sm != device().info().simulates_sm) command += "FLASH_SIMT_TARGET=" + std::to_string(run.sm) + " ";
  if (!gpu && run.order != device().info().order) command += "FLASH_SIMT_ORDER=" + run.order + " ";
  command += "common/try.sh " + stage + " --variant " + run.variant;
  if (run.pass == Pass::backward) command += " --pass backward";
  if (run.tiles) command += " --tiles " + to_string(*run.tiles);
  if (!flash::variants(Backend::gpu).empty()) command += gpu ? " --device gpu" : " --device cpu";
  for (const std::string& argument : to_arguments(run.problem)) command += " " + argument;
  return command;
}

/// Notes the first failure of each test case: later problems of the same case may pass.
class SameProblem : public doctest::IReporter {
 public:
  explicit SameProblem(const doctest::ContextOptions&) {}

  void test_case_start(const doctest::TestCaseData&) override {
    last_run.reset();
    failed_.reset();
  }
  void log_assert(const doctest::AssertData& assertion) override {
    if (assertion.m_failed) remember();
  }
  void log_message(const doctest::MessageData& message) override {
    if (message.m_severity != doctest::assertType::is_warn) remember();
  }
  void test_case_exception(const doctest::TestCaseException&) override { remember(); }
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    const bool idle = !last_run && stats.numAssertsCurrentTest == 0;
    if (idle) std::printf("skipped: no variant of this stage takes these problems here\n");
    (idle ? any_idle : any_worked) = true;
    const std::string command = failed_ ? command_for(*failed_) : "";
    if (!command.empty()) std::cout << "The same problem by itself: " << command << "\n\n";
  }

  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}

 private:
  void remember() {
    if (!failed_) failed_ = last_run;
  }

  std::optional<LastRun> failed_;
};

REGISTER_LISTENER("same problem", 1, SameProblem);

}  // namespace

Device& device() {
  if (chosen_device == nullptr) chosen_device = open_cpu();
  return *chosen_device;
}

const std::string& only_variant() { return chosen_variant; }

}  // namespace flash::grid

int main(int argc, char** argv) {
  using namespace flash;
  constexpr int bad_usage = 2, skipped = 77;
  constexpr std::string_view variant = "--variant=";
  const std::regex known(  // ours and doctest's, which passes over what it does not know
      "-[^-].*|--(device=[cg]pu|variant=.+|(abort|case|dt|force|gnu|list|no|order|rand|source|subcase|test)-.*|"
      "(count|duration|exit|first|help|last|minimal|out|quiet|reporters|subcase|success|version)(=.*)?)");
  for (const std::string argument : std::span(argv, static_cast<std::size_t>(argc)).subspan(1)) {
    if (!std::regex_match(argument, known)) {
      std::fprintf(stderr, "unknown argument '%s'; allowed: --device=cpu or gpu, --variant=NAME, and those of --help\n",
                   argument.c_str());
      return bad_usage;
    }
    if (argument.starts_with(variant)) grid::chosen_variant = argument.substr(variant.size());
    if (argument != "--device=gpu") continue;
    std::string why_not;
    grid::chosen_device = open_gpu(why_not);
    if (grid::chosen_device == nullptr) {
      std::printf("skipped: %s\n", why_not.c_str());
      return skipped;
    }
  }
  if (!grid::only_variant().empty() && grid::variants().empty()) {
    std::fprintf(stderr, "this stage has no variant '%s'\n", grid::only_variant().c_str());
    return bad_usage;
  }
  const int result = doctest::Context(argc, argv).run();
  return result == 0 && grid::any_idle && !grid::any_worked ? skipped : result;
}
