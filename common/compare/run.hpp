// Runs stage programs and collects rows.
#pragma once

#include "common/compare/options.hpp"
#include "common/compare/row.hpp"

namespace flash {

/// Plans and runs all, with progress on stderr; what --save and --resume ask for included. `sources`: the project's folder. `command`:
/// what started this program.
std::vector<Row> run_all(const CompareOptions&, const std::filesystem::path& sources, const std::string& command);

}  // namespace flash
