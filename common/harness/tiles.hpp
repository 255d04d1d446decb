// The tile sizes that a variant has compiled: which there are for a problem, which one --tiles means.
#pragma once

#include "common/attention/variant.hpp"

#include <optional>
#include <string>
#include <vector>

namespace flash {

/// "64,32", as --tiles takes it.
std::string to_string(const Tiles&);

/// "64,32" as two whole numbers from 1, or UsageError.
Tiles parse_tiles(const std::string& option, const std::string& text);

/// The variant's tile sizes for the pass on such a device, the default first; empty if there is nothing to choose. DeviceError if
/// it has tile sizes, but none that fits.
std::vector<TileChoice> tile_choices(const Variant&, const FullProblem&, Pass, const DeviceLimits&);

/// UsageError if the variant has no tile sizes to choose from; it names those that have. `given`: "--tiles is 64,32".
void require_tiles(const Variant&, const std::string& given);

/// The tile sizes that a run of the pass uses: `wanted`, else the default; absent if there is nothing to choose. UsageError if
/// `wanted` is none of the choices.
std::optional<Tiles> choose_tiles(const Variant&, const FullProblem&, Pass, const DeviceLimits&, std::optional<Tiles> wanted);

/// Blocks that fit an SM at once as far as shared memory decides. Each block takes 1 KB more than it asks for.
std::size_t blocks_by_shared_memory(const TileChoice&, const DeviceLimits&);

/// For --list: the choices of one pass, for all head dimensions that have the same.
struct ListedTiles {
  Pass pass;
  std::vector<int> head_dims;
  std::vector<TileChoice> choices;  ///< the default first; empty: none fits
};

/// The subject of --list: a problem (its head dimension does not count), the head dimensions, a device.
struct TilesToList {
  FullProblem problem;
  std::vector<int> head_dims;
  DeviceLimits limits;
};

std::vector<ListedTiles> list_tiles(const Variant&, const TilesToList&);

}  // namespace flash
