// The command line: what is understood, and what is refused with one line.
#include "common/base/error.hpp"
#include "common/harness/options.hpp"
#include "common/harness/parse.hpp"
#include "common/harness/test/lines.hpp"

#include <doctest/doctest.h>
#include <CLI/CLI.hpp>

#include <iterator>
#include <sstream>

namespace {

const flash::StageInfo stage{.name = "09_test", .idea = "an idea", .backward_stage = ""};

flash::CommandLine parse(std::vector<std::string> arguments) {
  std::vector<const char*> argv{"09_test"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return flash::parse_options(stage, static_cast<int>(argv.size()), argv.data());
}

/// The same for arguments with a space between two.
flash::Options options_of(const std::string& line) {
  std::istringstream stream(line);
  return parse({std::istream_iterator<std::string>(stream), {}}).options;
}

std::string refusal(const std::vector<std::string>& arguments) {
  try {
    parse(arguments);
    return "";
  } catch (const flash::UsageError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("options: defaults") {
  const flash::Options options = parse({}).options;
  CHECK(options.pass == flash::Pass::forward);
  CHECK(options.device == flash::DeviceChoice::automatic);
  CHECK(options.check);
  CHECK_FALSE(options.json);
  const flash::RequestedSizes sizes = options.problem.sizes.over({});
  CHECK(sizes.kv_heads == sizes.heads);
  const flash::FullProblem problem = flash::make_problem(options.problem, sizes);
  CHECK(problem.scale == flash::default_scale(problem.d));
  CHECK_FALSE(options.problem.dtype.has_value());  // the variant decides
}

TEST_CASE("options: everything at once") {
  const flash::Options o = options_of(
      "--pass backward --variant warp --batch 2 --heads 6 --kv-heads 3 --seq-q 5 --seq-k 7 --causal --head-dim 11 --bias alibi "
      "--scale=-0.5 --dtype bf16 --layout kv --seed 18446744073709551615 --load in --save out --device cpu --bench "
      "--iterations 3 --no-check --no-watch --json --list");
  CHECK(o.pass == flash::Pass::backward);
  CHECK(o.variant == "warp");
  CHECK(o.problem.bias == flash::BiasKind::alibi);
  CHECK(o.problem.seed == ~std::uint64_t{0});
  CHECK(o.load == "in");
  CHECK(o.save == "out");
  CHECK(o.device == flash::DeviceChoice::cpu);
  CHECK(o.iterations == 3);
  CHECK(o.bench);
  CHECK(o.json);
  CHECK(o.list);
  CHECK_FALSE(o.check);
  CHECK_FALSE(o.watch);
  const flash::FullProblem p = flash::make_problem(o.problem, o.problem.sizes.over({}));
  CHECK(flash::describe(p) == "B=2 H=6 Hkv=3 Nq=5 Nk=7 d=11 scale=-0.5 causal bf16 kv bias=alibi[1,6,1,1]");
}

TEST_CASE("options: a problem handed on as arguments is the same problem") {
  const flash::Options first = options_of(
      "--batch 3 --heads 4 --seq 9 --scale=-1e-7 --causal --layout bnhd --bias vector --seed 7 --input large --window 3,-1 "
      "--softcap 0.3 --dropout 0.1 --dropout-seed 9 --score lorentz");
  const flash::RequestedSizes sizes = first.problem.sizes.over({});
  const flash::Options second = parse(flash::to_arguments(first.problem, sizes)).options;
  CHECK(flash::describe(flash::make_problem(first.problem, sizes)) ==
        flash::describe(flash::make_problem(second.problem, second.problem.sizes.over({}))));
  CHECK(second.problem.scale == first.problem.scale);
  CHECK(second.problem.softcap == first.problem.softcap);
  CHECK(second.problem.dropout.probability == 0.1f);
  CHECK(second.problem.dropout.seed == 9);
  CHECK(second.problem.score == flash::Score::lorentz);
  CHECK(flash::to_string(second.problem.window) == "3,-1");
  CHECK(second.problem.seed == 7);
  CHECK(second.problem.input == flash::InputKind::large);
}

TEST_CASE("options: centroids handed on as arguments") {
  const flash::Options first = options_of("--score lorentz --values centroid");
  const flash::RequestedSizes sizes = first.problem.sizes.over({});
  CHECK(parse(flash::to_arguments(first.problem, sizes)).options.problem.values == flash::Values::centroid);
}

TEST_CASE("options: lengths of queries, and of keys where they differ, handed on as arguments") {
  const flash::Options first = parse({"--lengths", "9,0,4:7,0:2", "--causal"}).options;
  CHECK(first.problem.sequences.queries == std::vector{0, 9, 9, 13, 13});
  CHECK(first.problem.sequences.keys == std::vector{0, 9, 9, 16, 18});
  const flash::RequestedSizes sizes = first.problem.sizes.over({});
  const flash::FullProblem problem = flash::make_problem(first.problem, sizes);
  CHECK(flash::describe(problem) == "B=1 H=2 Hkv=2 Nq=13 Nk=18 d=64 causal lengths=9,0,4:7,0:2 fp32 bhnd bias=none");
  const flash::Options second = parse(flash::to_arguments(first.problem, sizes)).options;
  CHECK(flash::describe(flash::make_problem(second.problem, second.problem.sizes.over({}))) == flash::describe(problem));
}

TEST_CASE("options: bad values are named, with what is allowed") {
  struct Case {
    std::vector<std::string> arguments;
    const char* expected;
  };
  const std::vector<Case> cases{
      {{"--batch", "0"}, "--batch is '0'; allowed: whole numbers from 1 to 1073741824"},
      {{"--seq", "1073741825"}, "--seq is '1073741825'; allowed: whole numbers from 1 to 1073741824"},
      {{"--head-dim", "257"}, "--head-dim is '257'; allowed: whole numbers from 1 to 256"},
      {{"--lengths", "5,x"}, "--lengths is '5,x'; allowed: lengths such as 100,0,7:20"},
      {{"--lengths", "1073741824,1"}, "at most 2^30 together"},
      {{"--lengths", "5", "--seq-q", "5"}, "--lengths and --seq-q are both given; allowed: one of them"},
      {{"--seq", "9223372036854775808"}, "--seq is '9223372036854775808'"},
      {{"--seq-q", "abc"}, "--seq-q is 'abc'"},
      {{"--kv-heads", ""}, "--kv-heads"},
      {{"--batch", "+2"}, "--batch is '+2'"},
      {{"--batch"}, "--batch: 1 required B missing; --help lists the options"},
      {{"--batch", "1", "--batch", "2"}, "--batch: At Most 1 required but received 2"},
      {{"--seq", "8", "--seq-q", "8"}, "--seq and --seq-q are both given"},
      {{"--scale", "nan"}, "--scale is 'nan'"},
      {{"--scale", "1e99"}, "--scale is '1e99'"},
      {{"--seed", "18446744073709551616"},
       "--seed is '18446744073709551616'; allowed: whole numbers from 0 to 18446744073709551615"},
      {{"--iterations", "5"}, "--iterations is given without --bench or --tune"},
      {{"--load", "x", "--input", "normal"}, "--load and --input are both given"},
      {{"--iterations", "2147483648"}, "--iterations is '2147483648'; allowed: whole numbers from 1 to 2147483647"},
      {{"--dtype", "fp8"}, "--dtype is 'fp8'; allowed: fp32, fp16, bf16"},
      {{"--layout", "nhd"}, "--layout is 'nhd'; allowed: bhnd, bnhd, qkv, kv"},
      {{"--bias", "relative"}, "--bias is 'relative'; allowed: none, vector, matrix, alibi"},
      {{"--input", "zeros"}, "--input is 'zeros'; allowed: normal, ones, identity, ramp, large"},
      {{"--device", "tpu"}, "--device is 'tpu'; allowed: auto, gpu, cpu"},
      {{"--pass", "both"}, "--pass is 'both'; allowed: forward, backward"},
      {{"--load", ""}, "--load"},
      {{"--frobnicate"}, "unknown argument '--frobnicate'"},
      {{"--batc", "1"}, "unknown argument '--batc'; --help lists the options"},
      {{"stray"}, "unknown argument 'stray'"},
      {{"--causal=maybe"}, "--causal"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.arguments.front());
    const std::string message = refusal(c.arguments);
    CHECK_MESSAGE(message.find(c.expected) != std::string::npos, message);
    CHECK(message.find('\n') == std::string::npos);
  }
}

TEST_CASE("options: --help names defaults and fits a terminal, --version the version") {
  const std::string help = parse({"--help"}).answer;
  for (const char* text : {"Batch (default: 1)", "queries and keys (default: 128)", "dimension (default: 64)"}) {
    CAPTURE(text);
    CHECK(help.find(text) != std::string::npos);
  }
  CHECK(help.find('{') == std::string::npos);  // of CLI11's for flags
  CHECK(flash::test::longest_line(help) <= 80);
  CHECK(parse({"--version"}).answer.find("flash-steps") != std::string::npos);
  CHECK(parse({}).answer.empty());
}
