// Where a saved figure comes from, so that a stale one shows.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>

namespace flash {

/// {"commit": id of HEAD, with "-dirty" if files have changed since, "date": "2026-01-31T12:00:00Z"}. The commit is null where git
/// or the repository is missing.
nlohmann::ordered_json commit_and_date(const std::filesystem::path& sources);

/// {kernel path -> git blob id}: what `git hash-object` says about the file as it is now; null where that is not known.
nlohmann::ordered_json blob_ids(const std::filesystem::path& sources, const std::string& kernel);

}  // namespace flash
