// Runs stage programs and collects rows.
#pragma once

#include "common/compare/options.hpp"
#include "common/compare/row.hpp"

namespace flash {

/// Plans and runs everything, with progress on stderr. --save and --resume are part of it. `sources`: the project's folder.
std::vector<Row> run_all(const CompareOptions&, const std::filesystem::path& sources);

}  // namespace flash
