// For tests: programs that behave like stages, well or badly. Each is a shell script that answers --list --json and one run.
#pragma once

#include "common/harness/test/program.hpp"
#include "common/harness/test/temporary_folder.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

namespace flash::test {

using Json = nlohmann::ordered_json;

using Strings = std::vector<std::string>;

inline Strings joined(Strings one, const Strings& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

/// A variant as --list --json has it.
inline std::string listed(const std::string& name, const std::string& passes, const std::string& dtypes = R"("fp32")",
                          const std::string& kernel = "01_naive/kernel.cuh") {
  return R"({"name": ")" + name + R"(", "idea": "an idea, with a comma", "passes": [)" + passes + R"(], "dtypes": [)" + dtypes +
         R"(], "kernel": ")" + kernel + "\"}";
}

inline constexpr const char *forward = R"("forward")", *both_passes = R"("forward", "backward")";

/// A folder of fake stage programs, and of what a test writes beside them.
class FakeStages : public TemporaryFolder {
 public:
  FakeStages() = default;
  /// With 01_first, a stage that does this when it runs.
  explicit FakeStages(const std::string& run, const std::string& passes = forward) { add("01_first", run, passes); }

  std::string file(const std::string& name) const { return path() / name; }

  /// The lines that stages wrote to their $log since the last call, a space behind each.
  std::string logged() const {
    std::string lines = read_bytes(file("log"));
    std::replace(lines.begin(), lines.end(), '\n', ' ');
    std::filesystem::remove(file("log"));
    return lines;
  }
  /// A stage with one variant, "plain". `run` is shell code: what the program does when it is not asked for its list.
  void add(const std::string& name, const std::string& run, const std::string& passes = forward,
           const std::string& dtypes = R"("fp32")") const {
    add_variants(name, listed("plain", passes, dtypes), run);
  }
  void add_variants(const std::string& name, const std::string& variants, const std::string& run) const {
    add_raw(name, "case \"$*\" in '--list --json') echo '{\"stage\": \"" + name + "\", \"variants\": [" + variants +
                      "]}'; exit;; esac\n" + run + "\n");
  }
  /// A program that is only this shell code.
  void add_raw(const std::string& name, const std::string& code) const {
    write_bytes(file(name), "#!/bin/sh\n" + code);
    std::filesystem::permissions(file(name), std::filesystem::perms::owner_all);
  }
};

/// Shell code that prints the report of the problem that the command line asks for, on the device that it asks for, and exits. `first`:
/// shell code that runs before, with the variables B H Hkv Nq Nk d causal dtype device pass n log, and with more and code to set.
inline std::string answers(const std::string& first = "") {
  return R"(causal=false dtype=fp32 more= code=0 log=${0%/*}/log
while [ $# -gt 0 ]; do
  case "$1" in
    --batch) B=$2;; --heads) H=$2;; --kv-heads) Hkv=$2;; --seq-q) Nq=$2;; --seq-k) Nk=$2;; --head-dim) d=$2;;
    --seq) Nq=$2; Nk=$2; Hkv=$H;;
    --dtype) dtype=$2;; --device) device=$2;; --pass) pass=$2;; --causal) causal=true;; --scale=*) scale=${1#--scale=};;
    --iterations) n=$2 more=", \"time\": {\"median_ms\": 1, \"iterations\": $2}";;
  esac
  shift
done
case "$d" in 16) : ${scale:=0.25};; 32) : ${scale:=0.17677669};; *) : ${scale:=0.125};; esac
[ $device = gpu ] || counters=', "counters": {"read_bytes": 3072, "written_bytes": 1024, "barriers": 1234}'
)" + first +
         R"(
cat <<END
{"stage": "x", "device": {"kind": "$device", "name": "Test $device"}, "extra_memory_bytes": 2048,
 "problem": {"batch": $B, "heads": $H, "kv_heads": $Hkv, "seq_q": $Nq, "seq_k": $Nk, "head_dim": $d, "scale": $scale,
             "causal": $causal, "bias": "none", "dtype": "$dtype", "layout": "bhnd", "input": "normal", "seed": 1},
 "check": {"passed": true, "sampled": false, "tensors": {"o": {"max_abs": 1.5e-06, "rel_l2": 1e-7, "tolerance": 2e-6},
                                                         "lse": {"max_abs": 0.25, "rel_l2": 1e-7, "tolerance": 1}}}
 $counters$more}
END
exit $code)";
}

/// Runs the comparison program.
inline ProcessResult compare(const Strings& arguments) { return run_program(FLASH_COMPARE_PROGRAM, arguments); }

/// Runs it among these stages.
inline ProcessResult compare(const FakeStages& stages, const Strings& arguments) {
  return compare(joined({"--bin", stages.path().string()}, arguments));
}

/// The same on the CPU, where most of it is tested.
inline ProcessResult compare_on_cpu(const FakeStages& stages, const Strings& arguments = {}) {
  return compare(stages, joined({"--device", "cpu", "--pass", "forward"}, arguments));
}

/// The same below a limit that the shell sets.
inline ProcessResult limited(const std::string& limit, const FakeStages& stages, const Strings& arguments) {
  const Strings shell{"/bin/sh", "-c", limit + "; exec \"$0\" \"$@\" --device cpu --pass forward", FLASH_COMPARE_PROGRAM};
  return run_process(joined(joined(shell, {"--bin", stages.path().string()}), arguments), std::chrono::seconds(60));
}

/// The result of a run that has to end well.
inline ProcessResult good(ProcessResult result) {
  CHECK_MESSAGE(result.exit_code == 0, result.error);
  return result;
}

/// JSON Lines as an array.
inline Json rows_in(const std::string& file) {
  Json rows = Json::array();
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) rows.push_back(Json::parse(line));
  return rows;
}

/// The rows of a run that has to end well.
inline Json rows_of(const FakeStages& stages, const Strings& arguments) {
  const std::string file = stages.file("saved.jsonl");
  std::filesystem::remove(file);
  good(compare(stages, joined(arguments, {"--save", file})));
  return rows_in(file);
}

inline std::string lines_of(const Json& rows) {
  std::string text;
  for (const Json& row : rows) text += row.dump() + "\n";
  return text;
}

/// Starts it among these stages, and sends it a signal, such as TERM, as soon as there is something in the file `ready`.
inline void end_by_signal(const FakeStages& stages, const Strings& more, const std::string& signal, const std::string& ready) {
  const std::string code = "\"$@\" >/dev/null 2>&1 & while [ ! -s '" + ready + "' ]; do sleep 0.01; done; kill -" + signal +
                           " $!; wait $!; kill -l $?";
  const Strings shell{"/bin/sh", "-c", code, "sh", FLASH_COMPARE_PROGRAM, "--bin", stages.path()};
  CHECK(good(run_process(joined(shell, more), std::chrono::seconds(60))).output == signal + "\n");
}

inline void check_has(const std::string& text, const Strings& parts) {
  CAPTURE(text);
  for (const std::string& part : parts) CHECK_MESSAGE(contains(text, part), part);
}

/// Bad usage: exit code 2 and one line that has `message`.
inline void check_refused(const ProcessResult& result, const std::string& message) { check_refused(result, 2, message); }

/// The same of each of these command lines, whose words stand between spaces, on the CPU.
inline void check_refused_each(const FakeStages& stages, const Strings& lines, const std::string& message = "compare: ") {
  for (const std::string& line : lines) {
    CAPTURE(line);
    Strings arguments;
    std::istringstream stream(line);
    for (std::string word; std::getline(stream, word, ' ');) arguments.push_back(word);
    check_refused(compare_on_cpu(stages, arguments), message);
  }
}

}  // namespace flash::test
