// --tune: the tile sizes of the stages' variants.
#include "common/compare/test/fake_stages.hpp"

#include <doctest/doctest.h>

namespace {

using namespace flash::test;
using flash::ProcessResult;

/// Two forward steps and a backward one, with tiles for d = 32 and 64 or 32 alone, and one without a choice; a batch of 7 has no room.
struct Tuned {
  FakeStages stages;
  std::string file = stages.file("tuned.jsonl");

  Tuned() {
    const std::string ahead = R"({"pass": "forward", "head_dims": [64, 32]})";
    const std::string both = ahead + R"(, {"pass": "backward", "head_dims": [32]})", fp32 = R"("fp32")";
    const std::string variants = listed("first", forward, fp32, ahead) + "," + listed("second", forward, fp32, ahead) + "," +
                                 listed("last", both_passes, fp32, both, "05_fa1_backward/kernel.cuh") + "," +
                                 listed("without", forward);
    stages.add_variants("06_a", variants, answers(R"([ $Nq = 1 ] || echo "$arguments" >> $log
[ $B != 7 ] || { echo 'no room' >&2; exit 3; }
[ -z $tune ] || more=", \"tune\": {\"default\": {\"br\": 64, \"bc\": 32}, \"fastest\": null,
  \"choices\": [{\"br\": 64, \"bc\": 32, \"time\": {\"median_ms\": 1, \"iterations\": ${n:-0}}}]}")"));
  }

  ProcessResult run(const Strings& more) const {
    stages.logged();
    return compare(
        stages, joined({"--tune", "--sweep", "d=16,32,64", "--sweep", "causal=no,yes", "--seq", "64", "--save", file}, more));
  }
  Json rows() const { return rows_in(file); }
};

}  // namespace

TEST_CASE("tune: of each pass the last variant, over the head dimensions that have tiles") {
  const Tuned tuned;
  const ProcessResult result = good(tuned.run({"--variant", "last", "--iterations", "5"}));
  std::string seen;
  for (const Json& row : tuned.rows()) {
    seen += row["variant"].get<std::string>() + " " + row["problem"]["head_dim"].dump() + " " +
            row["problem"]["causal"].dump() + "\n";
    CHECK(row["sources"].contains(row["kernel"].get<std::string>()));
  }
  CHECK(seen == "second 32 false\nlast 32 false\nsecond 32 true\nlast 32 true\nsecond 64 false\nsecond 64 true\n");
  const std::string log = read_bytes(tuned.stages.file("log"));
  check_has(log, {"--variant second --pass forward --device gpu --json ", " --tune --iterations 5\n"});
  CHECK_FALSE(contains(log, "--bench"));
  CHECK_FALSE(contains(log, "--device cpu"));  // nothing is counted
  check_has(result.output, {"06_a/second", "64,32", "fastest", "d=32 causal"});
  CHECK(compare({"--rows", tuned.file}).output == result.output);
  CHECK(
      contains(compare({"--rows", FLASH_SOURCE_DIR "/docs/results/nvidia_h200/tuned.jsonl"}).output, "08_tensor_cores/lazy_maximum"));
  const ProcessResult failed = tuned.run({"--variant", "last", "--batch", "7"});
  CHECK(failed.exit_code == 3);
  CHECK(contains(failed.output, "06_a/second: no room"));
  check_refused(tuned.run({"--pass", "backward", "--dtype", "fp16"}), "nothing to run: no stage here has a choice");
}

TEST_CASE("tune: a row of a comparison is no row of --tune to --resume") {
  const Tuned tuned;
  const Strings again{"--variant", "last", "--iterations", "5", "--resume"};
  good(tuned.run(again));
  Json rows = tuned.rows();
  good(tuned.run(again));
  CHECK(read_bytes(tuned.stages.file("log")).empty());
  rows[0].erase("tune");
  write_bytes(tuned.file, lines_of(rows));
  good(tuned.run(again));
  CHECK(tuned.rows().size() == rows.size() + 1);
}
