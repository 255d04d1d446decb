// The command line: what is understood, and what is refused with one line.
#include "common/harness/options.hpp"
#include "common/harness/parse.hpp"
#include "common/harness/test/lines.hpp"
#include "common/machine/error.hpp"

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
  CHECK(options.watch);
  CHECK_FALSE(options.problem.dtype.has_value());  // the variant decides
  const flash::FullProblem problem = flash::make_problem(options.problem, options.problem.sizes.over({}));
  CHECK(flash::describe(problem) == flash::describe({}));
}

TEST_CASE("options: everything at once, and the problem handed on as arguments") {
  const flash::Options o = options_of(
      "--pass backward --variant warp --batch 2 --heads 6 --kv-heads 3 --seq-q 5 --seq-k 7 --causal --head-dim 11 --bias alibi "
      "--scale=-1e-7 --dtype bf16 --layout kv --seed 18446744073709551615 --input large --window 3,-1 --softcap 0.3 "
      "--dropout 0.1 --dropout-seed 9 --score lorentz --save out --device cpu --bench --iterations 3 --no-check --no-watch "
      "--json --list");
  CHECK(o.pass == flash::Pass::backward);
  CHECK(o.variant == "warp");
  CHECK(o.save == "out");
  CHECK(o.device == flash::DeviceChoice::cpu);
  CHECK(o.iterations == 3);
  for (const bool set : {o.bench, o.json, o.list, !o.check, !o.watch}) CHECK(set);
  const flash::RequestedSizes sizes = o.problem.sizes.over({});
  const flash::ProblemOptions again = parse(flash::to_arguments(o.problem, sizes)).options.problem;
  for (const flash::ProblemOptions& options : {o.problem, again}) {
    CHECK(flash::describe(flash::make_problem(options, options.sizes.over({}))) ==
          "B=2 H=6 Hkv=3 Nq=5 Nk=7 d=11 scale=-1e-07 score=lorentz causal window=3,-1 softcap=0.3 dropout=0.1 (seed 9) bf16 kv "
          "bias=alibi[1,6,1,1]");
    CHECK(options.scale == -1e-7f);
    CHECK(options.seed == ~std::uint64_t{0});
    CHECK(options.input == flash::InputKind::large);
  }
}

TEST_CASE("options: lengths of queries, and of keys where they differ, and centroids handed on as arguments") {
  const flash::ProblemOptions first =
      options_of("--lengths 9,0,4:7,0:2 --causal --heads 3 --score lorentz --values centroid").problem;
  CHECK(first.sequences.queries == std::vector{0, 9, 9, 13, 13});
  CHECK(first.sequences.keys == std::vector{0, 9, 9, 16, 18});
  const flash::ProblemOptions second = parse(flash::to_arguments(first, first.sizes.over({}))).options.problem;
  for (const flash::ProblemOptions& options : {first, second}) {
    CHECK(flash::describe(flash::make_problem(options, options.sizes.over({}))) ==
          "B=1 H=3 Hkv=3 Nq=13 Nk=18 d=64 score=lorentz values=centroid causal lengths=9,0,4:7,0:2 fp32 bhnd bias=none");
  }
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
      {{"--dtype", "fp8"}, "--dtype is 'fp8'; allowed: fp32, fp16, bf16"},
      {{"--load", ""}, "--load"},
      {{"--batc", "1"}, "unknown argument '--batc'; --help lists the options"},
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
