#include "common/attention/option_table.hpp"
#include "common/attention/registry.hpp"
#include "common/machine/error.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <string>
#include <utility>

namespace flash {
namespace {

/// The options of a command such as "--batch=2 --causal=true".
GivenOptions given(const std::string& line) {
  GivenOptions all;
  std::istringstream words(line);
  for (std::string word; words >> word;) all[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  return all;
}

std::string refusal_of(const std::string& line) {
  try {
    make_problem(given(line));
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

std::string line_of(const FullProblem& p) { return joined(to_arguments(p), std::identity(), " "); }

}  // namespace

TEST_CASE("options: a problem handed on as arguments is the same problem, and its line names what is set") {
  const struct {
    const char *arguments, *line;
  } cases[]{{"", "B=1 H=2 Hkv=2 Nq=128 Nk=128 d=64 fp32 bhnd bias=none"},
            {"--heads=4", "B=1 H=4 Hkv=4 Nq=128 Nk=128 d=64 fp32 bhnd bias=none"},
            {"--batch=2 --heads=6 --kv-heads=3 --seq-q=5 --seq-k=7 --causal=true --head-dim=11 --bias=alibi --scale=-1e-7 "
             "--dtype=bf16 --layout=kv --seed=18446744073709551615 --input=large --window=3,-1 --softcap=0.3 --dropout=0.1 "
             "--dropout-seed=9 --score=lorentz",
             "B=2 H=6 Hkv=3 Nq=5 Nk=7 d=11 scale=-1e-07 causal window=3,-1 softcap=0.3 dropout=0.1 dropout-seed=9 "
             "score=lorentz bf16 kv bias=alibi"},
            {"--lengths=9,0,4:7,0:2 --causal=true --heads=3 --score=lorentz --values=centroid",
             "B=1 H=3 Hkv=3 Nq=13 Nk=18 d=64 causal lengths=9,0,4:7,0:2 score=lorentz values=centroid fp32 bhnd bias=none"},
            {"--bias=matrix --bias-per-batch=true --bias-per-head=false --bias-gradient=true",
             "B=1 H=2 Hkv=2 Nq=128 Nk=128 d=64 fp32 bhnd bias=matrix bias-per-batch bias-per-head=false bias-gradient"}};
  for (const auto& [arguments, line] : cases) {
    const FullProblem p = make_problem(given(arguments)), again = make_problem(given(line_of(p)));
    CHECK(describe(p) == line);
    CHECK(describe(again) == line);
    CHECK(line_of(again) == line_of(p));
    CHECK(p.scale == again.scale);
    CHECK(p.seed == again.seed);
  }
}

TEST_CASE("options: what is no value, or goes with no other option, is refused by name in one line") {
  std::istringstream lines(
      "--batch=0;--batch=+2;--batch=1073741825;--kv-heads=;--head-dim=257;--heads=6 --kv-heads=4;--scale=nan;--scale=1e99;"
      "--scale=1e-50;--bias-per-batch=true;--bias-per-head=false;--dropout-seed=7;"
      "--seed=18446744073709551616;--seed=-1;--dtype=fp8;--causal=maybe;--window=-2,0;--window=1073741824,0;--window=3;"
      "--softcap=-1;--softcap=1e-40;--dropout=1;--dropout=-0.1;--lengths=5,x;--lengths=1073741824,1;--lengths=0,0:9;"
      "--lengths=5 --seq-q=6;--lengths=5 --bias=matrix;--layout=qkv --seq-q=5;--layout=qkv --heads=4 --kv-heads=2;"
      "--bias-gradient=true --bias=alibi;--values=centroid;--values=centroid --score=lorentz --dropout=0.1;"
      "--seq-q=1073741824 --seq-k=1073741824 --heads=1;"  // scores of 2^62 bytes
      "--batch=1048576 --heads=1048576 --seq-q=1048576 --seq-k=1048576 --head-dim=128");
  for (std::string line; std::getline(lines, line, ';');) {
    CAPTURE(line);
    const std::string why = refusal_of(line), name = line.substr(0, line.find('='));
    CHECK_MESSAGE((why.find(name) != std::string::npos || (name == "--batch" && !why.empty())), why);
    CHECK(why.find('\n') == std::string::npos);
  }
  CHECK(refusal_of("--lengths=5,6 --seq-q=11 --batch=1") == "");  // agrees
}

TEST_CASE("options: the largest sizes and the widest window keep the mask within an int") {
  FullProblem p;
  p.causal = true;
  constexpr int largest = 1 << 30;
  for (const auto& [Nq, Nk] : {std::pair{1, largest}, {largest, largest}, {largest, 1}}) {
    p.Nq = Nq, p.Nk = Nk;
    for (const Window& window : {Window{}, Window{largest - 1, largest - 1}}) {
      p.window = window;
      CHECK(p.keys_of(Nq - 1).contain(Nk - 1));
      CHECK(p.keys_of(0).end == std::max(0, Nk - Nq + 1));
      CHECK(p.keys_of(Nq - 1).end == Nk);
      CHECK(static_cast<OptionsProblem&>(p).end_query(Nk - 1) == Nq);
    }
  }
}

TEST_CASE("features: kernels are refused what they do not say that they know, and what they are not for") {
  Variant variant{.name = "test", .idea = "", .forward = nullptr};
  FullProblem p;
  p.window = {5, 0}, p.softcap = 30.0f, p.sequences = {{0, 128}, {0, 128}}, p.dropout = {0.1f, 1};
  CHECK_FALSE(p.is_general());
  CHECK(features_of(p) == usual_options);
  CHECK(refusal(variant, p) == "it does not know --window, --softcap, --lengths, --dropout");
  variant.takes = general_problem | usual_options;
  CHECK(refusal(variant, p) == "");
  p.bias_gradient = true, p.score = Score::lorentz, p.values = Values::centroid;  // of these only some steps know the others
  CHECK(refusal(variant, p) == "it does not know --score lorentz, --values centroid, --bias-gradient");

  p = {};
  p.H = 4, p.Nk = 64, p.causal = true, p.bias = BiasKind::alibi, p.layout = Layout::kv, p.scale = -2.0f;
  CHECK(p.is_general());
  CHECK(features_of(p) == (Features::causal | Features::shared_heads | Features::packed_kv | Features::alibi |
                           Features::unequal_lengths | Features::any_scale));

  variant.needs = Features::softcap;
  CHECK(refusal(variant, p) == "it is only for --softcap");
  p.softcap = 2.0f;
  CHECK(refusal(variant, p) == "");
}

TEST_CASE("features: sequences whose padding takes offsets past 32 bits are refused") {
  Variant variant{.name = "test", .idea = "", .forward = nullptr};
  variant.takes = plain_problem | Features::lengths;
  variant.workspace = [](const Problem&, Pass) {
    return std::vector<WorkspaceSpec>{{.name = "sum", .shape = {1, 1, 1, (1 << 30) - 1}, .per_sequence = 1 << 29}};
  };
  FullProblem p;
  p.sequences = {{0, 64, 128}, {0, 64, 128}};
  CHECK(refusal(variant, p) == "");  // 2^31 - 1 elements
  p.sequences = {{0, 64, 128, 128}, {0, 64, 128, 128}};
  CHECK(refusal(variant, p).starts_with("3 sequences of 128 queries; "));
}

}  // namespace flash
