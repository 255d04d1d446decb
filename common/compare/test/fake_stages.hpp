// For tests: programs that behave like stages, well or badly. Each is a shell script that answers --list --json and one run.
#pragma once

#include "common/compare/process.hpp"
#include "common/harness/test/temporary_folder.hpp"

#include <string>

namespace flash::test {

/// The report of a simulated forward run that passed its check.
inline std::string passed_report() {
  return R"({"stage": "x", "device": {"kind": "cpu", "name": "Test CPU"}, "problem": {"batch": 1, "seq_q": 256},
             "extra_memory_bytes": 2048,
             "check": {"passed": true, "sampled": false,
                       "tensors": {"o": {"max_abs": 1.5e-06, "rel_l2": 1e-07, "tolerance": 2e-06},
                                   "lse": {"max_abs": 0.25, "rel_l2": 1e-07, "tolerance": 1}}},
             "counters": {"read_bytes": 3072, "written_bytes": 1024, "barriers": 1234, "warp_operations": 5, "bank_conflicts": 0}})";
}

/// A folder of fake stage programs.
class FakeStages : public TemporaryFolder {
 public:
  /// `run` is shell code: what the program does when it is not asked for its list.
  void add(const std::string& name, const std::string& run, const std::string& passes = R"(["forward"])",
           const std::string& dtypes = R"(["fp32"])") const {
    add_raw(name, "case \"$*\" in '--list --json') cat <<'END'\n{\"stage\": \"" + name +
                      R"(", "idea": "i", "variants": [{"name": "plain", "idea": "an idea, with a comma", "passes": )" + passes +
                      R"(, "dtypes": )" + dtypes + R"(, "kernel": "01_naive/kernel.cuh"}]})" + "\nEND\nexit;; esac\n" + run +
                      "\n");
  }
  /// A program that is only this shell code.
  void add_raw(const std::string& name, const std::string& code) const {
    write_bytes(path() / name, "#!/bin/sh\n" + code);
    std::filesystem::permissions(path() / name, std::filesystem::perms::owner_all);
  }
};

/// Shell code that prints a report and exits.
inline std::string prints(const std::string& report, int code = 0) {
  return "cat <<'END'\n" + report + "\nEND\nexit " + std::to_string(code);
}

/// Runs the comparison program among them.
inline ProcessResult compare(const FakeStages& stages, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {FLASH_COMPARE_PROGRAM, "--bin", stages.path().string()});
  return run_process(arguments, std::chrono::seconds(60));
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace flash::test
