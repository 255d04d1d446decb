#include "common/harness/tiles.hpp"

#include "common/harness/parse.hpp"
#include "common/machine/error.hpp"

#include <algorithm>
#include <limits>

namespace flash {
namespace {

bool same_choices(const std::vector<TileChoice>& a, const std::vector<TileChoice>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const TileChoice& x, const TileChoice& y) {
    return x.tiles == y.tiles && x.threads == y.threads && x.shared_bytes == y.shared_bytes;
  });
}

}  // namespace

std::string to_string(const Tiles& tiles) { return std::to_string(tiles.Br) + "," + std::to_string(tiles.Bc); }

Tiles parse_tiles(const std::string& option, const std::string& text) {
  const auto [Br, Bc] = parse_pair(option, text, 1, std::numeric_limits<int>::max(), "Br,Bc, two whole numbers such as 64,32");
  return {Br, Bc};
}

std::vector<TileChoice> tile_choices(const Variant& variant, const FullProblem& problem, Pass pass,
                                     const DeviceLimits& limits) {
  if (variant.tiles == nullptr) return {};
  std::vector<TileChoice> choices = variant.tiles(problem, pass, limits);
  if (choices.empty()) {
    throw DeviceError(std::string("variant ") + variant.name + " has no tiles for the " + to_string(pass) +
                      " pass at d=" + std::to_string(problem.d) + " that run here: compute capability " +
                      std::to_string(limits.sm / 10) + "." + std::to_string(limits.sm % 10) + ", " +
                      std::to_string(limits.shared_bytes) + " bytes of shared memory for a block");
  }
  return choices;
}

void require_tiles(const Variant& variant, const std::string& given) {
  if (variant.tiles != nullptr) return;
  std::string with;
  for (const Variant& other : variants(Backend::cpu)) {
    if (other.tiles != nullptr) with += (with.empty() ? "" : ", ") + std::string(other.name);
  }
  if (with.empty()) throw UsageError(given + ", but no variant of this stage has tile sizes to choose from; leave it out");
  throw UsageError(given + ", but variant " + variant.name + " has no tile sizes to choose from; allowed with: " + with);
}

std::optional<Tiles> choose_tiles(const Variant& variant, const FullProblem& problem, Pass pass, const DeviceLimits& limits,
                                  std::optional<Tiles> wanted) {
  if (variant.tiles == nullptr) return std::nullopt;
  const std::vector<TileChoice> choices = tile_choices(variant, problem, pass, limits);
  if (!wanted) return choices.front().tiles;
  std::string allowed;
  for (const TileChoice& choice : choices) {
    if (choice.tiles == *wanted) return wanted;
    allowed += (allowed.empty() ? "" : "  ") + to_string(choice.tiles);
  }
  throw UsageError("--tiles is " + to_string(*wanted) + "; allowed for the " + to_string(pass) + " pass of " + variant.name +
                   " at d=" + std::to_string(problem.d) + " here: " + allowed);
}

std::size_t blocks_by_shared_memory(const TileChoice& choice, const DeviceLimits& limits) {
  return limits.shared_bytes_sm / (choice.shared_bytes + 1024);
}

std::vector<ListedTiles> list_tiles(const Variant& variant, const TilesToList& what) {
  std::vector<ListedTiles> all;
  if (variant.tiles == nullptr) return all;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (pass == Pass::backward && variant.backward == nullptr) continue;
    for (const int d : what.head_dims) {
      if (d > variant.max_head_dim) continue;
      FullProblem problem = what.problem;
      problem.d = d;
      if (!refusal(variant, problem).empty()) problem.dtype = variant.dtypes.front();
      std::vector<TileChoice> choices;
      if (refusal_on(variant, problem, what.limits).empty()) choices = variant.tiles(problem, pass, what.limits);
      if (!all.empty() && all.back().pass == pass && same_choices(all.back().choices, choices)) {
        all.back().head_dims.push_back(d);
      } else {
        all.push_back({pass, {d}, std::move(choices)});
      }
    }
  }
  return all;
}

}  // namespace flash
