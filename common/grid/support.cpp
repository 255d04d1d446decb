#include "common/grid/support.hpp"

#include "common/attention/cost.hpp"
#include "common/grid/problems.hpp"
#include "common/harness/inputs.hpp"
#include "common/harness/runner.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>

namespace flash::grid {

const std::vector<Variant>& variants() {
  static const std::vector<Variant> chosen = [] {
    std::vector<Variant> all = flash::variants(device().info().kind);
    if (!only_variant().empty())
      std::erase_if(all, [](const Variant& v) { return v.name != only_variant() && v.file != only_variant(); });
    return all;
  }();
  return chosen;
}

std::vector<Variant> variants_for(const FullProblem& problem) {
  std::vector<Variant> taking = variants();
  std::erase_if(taking, [&](const Variant& variant) {
    static std::set<std::string> said;
    const std::string why = refusal(variant, problem, device().limits());
    const std::string line = "not tested: " + std::string(variant.name) + ": " + why;
    const bool is_usual = only_variant().empty() && (general_problem & ~variant.takes) == Features::none;
    if (!why.empty() && !is_usual && said.insert(line).second) std::puts(line.c_str());
    return !why.empty();
  });
  return taking;
}

const Variant& variant_named(std::string_view name) { return flash::variant_named(device().info().kind, name); }

Results<float> run(const Variant& variant, const FullProblem& problem, const Inputs& inputs, Pass pass) {
  Runner runner(device(), variant, problem, inputs, pass);
  runner.run();
  return runner.results();
}

std::string failures(const CheckReport& report) {
  std::ostringstream text;
  for (const TensorCheck& check : report.tensors) {
    if (check.passed) continue;
    text << check.tensor << ": max error " << check.max_abs << " > " << check.tolerance << ", worst at (" << check.worst.b
         << ", " << check.worst.h << ", " << check.worst.row << ", " << check.worst.col << "): got " << check.worst.got
         << ", expected " << check.worst.expected << "\n";
  }
  return text.str();
}

void expect_passed(const CheckReport& report, const Variant& variant, const FullProblem& problem) {
  const std::string failed = failures(report);
  CHECK_MESSAGE(failed.empty(), std::string(variant.name) << " on " << describe(problem) << "\n" << failed);
}

Results<float> checked_run(const Variant& variant, const FullProblem& problem, const Inputs& inputs, Pass pass) {
  Results<float> got = run(variant, problem, inputs, pass);
  expect_passed(Checker(problem, inputs, pass, Sample{}).check(got), variant, problem);
  return got;
}

namespace {

/// Wide heads in 64 KB of shared memory. Newer GPUs have tiles for every d, and a kernel that has none there fails.
bool has_no_tiles_on_turing(const Variant& v, const FullProblem& problem, Pass pass) {
  const DeviceLimits limits = device().limits();
  return limits.sm < 80 && v.tiles != nullptr && v.tiles(problem, pass, limits).empty();
}

}  // namespace

std::vector<FullProblem> in_all_dtypes(const std::vector<FullProblem>& problems) {
  std::vector<FullProblem> all = problems;
  for (const Dtype dtype : variants().front().dtypes) {
    for (std::size_t n = 0; n < problems.size(); n += 3) {
      if (problems[n].dtype == dtype) continue;
      all.push_back(problems[n]);
      all.back().dtype = dtype;
    }
  }
  return all;
}

bool has_many_variants() { return variants().size() > 8 && device().info().kind == Backend::cpu; }

void check_variants_on(const std::vector<FullProblem>& problems, bool by_thirds, InputKind kind, bool predictable) {
  REQUIRE(!variants().empty());
  // Sanitizers take ten times as long, and a problem that one variant has run says most of what there is to say of the harness.
  const std::size_t groups = !has_many_variants() ? 1 : sanitized() ? 6 : by_thirds ? 3 : 1;
  const std::vector<FullProblem> all = in_all_dtypes(problems);
  for (std::size_t n = 0; n < all.size(); ++n) {
    FullProblem problem = all[n];
    problem.input = kind;
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      std::vector<Variant> taking = variants_for(problem);
      std::size_t turn = n;
      std::erase_if(taking, [&](const Variant& v) {
        return turn++ % groups != 0 || (pass == Pass::backward) != (v.backward != nullptr) ||
               has_no_tiles_on_turing(v, problem, pass);
      });
      if (taking.empty()) continue;

      const Inputs inputs = make_inputs(problem, pass);
      const Checker checker(problem, inputs, pass, Sample{});
      for (const Variant& v : taking) {
        Runner runner(device(), v, problem, inputs, pass);
        if (device().info().kind == Backend::gpu || v.predict == nullptr || !predictable) {
          runner.run();
        } else {
          Counters of_forward;
          check_counts(v, problem, pass, {}, runner.count(&of_forward));
          if (pass == Pass::backward) check_counts(v, problem, Pass::forward, {}, of_forward);
        }
        expect_passed(checker.check(runner.results()), v, problem);
      }
    }
  }
}

void check_every_tile_on(const std::vector<FullProblem>& problems) {
  for (const FullProblem& problem : problems) {
    for (const Variant& v : variants_for(problem)) {
      for (const Pass pass : {Pass::forward, Pass::backward}) {
        if (v.tiles == nullptr || !has_own_pass(v, pass)) continue;
        const Inputs inputs = make_inputs(problem, pass);
        const Checker checker(problem, inputs, pass, Sample{});
        for (const TileChoice& choice : v.tiles(problem, pass, device().limits())) {
          Runner runner(device(), v, problem, inputs, pass, choice.tiles);
          runner.run();
          CAPTURE(to_string(choice.tiles));
          expect_passed(checker.check(runner.results()), v, problem);
        }
      }
    }
  }
}

bool repeats(const Variant& variant, const Checker& checker, const Results<float>& first, Results<float> again) {
  if (variant.atomic_dQ && !first.dQ.empty()) {
    if (!checker.check(again).passed) return false;
    again.dQ = first.dQ;
  }
  return identical(first, again);
}

void check_counts(const Variant& variant, const FullProblem& problem, Pass pass, std::optional<Tiles> tiles,
                  const Counters& counters) {
  const std::string what = std::string(variant.name) + " " + to_string(pass) + " on " + describe(problem) +
                           (tiles ? ", tiles " + std::to_string(tiles->Br) + " x " + std::to_string(tiles->Bc) : "");
  const Prediction prediction = predict(variant, problem, pass, device().limits(), tiles);
  if (prediction.tensors.empty()) {
    const bool needs_one = only_variant().empty() && !variant.in_more;
    CHECK_FALSE_MESSAGE(needs_one, "predicted.hpp says nothing of ", what);
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
    const std::string values =
        what + ": " + entry.first + ": predicted " + std::to_string(expected) + ", counted " + std::to_string(counted);
    CHECK_MESSAGE(equal, values);
  }
}

void check_prediction(const Variant& variant, const FullProblem& problem, Pass pass, std::optional<Tiles> tiles) {
  Runner runner(device(), variant, problem, make_inputs(problem, pass), pass, tiles);
  check_counts(variant, problem, pass, tiles, runner.count());
}

}  // namespace flash::grid
