// Where a saved figure comes from, so that a stale one shows.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>

namespace flash {

/// {"commit": what the environment variable FLASH_COMMIT says, or else the id of HEAD, with "-dirty" if files have changed since, null
/// where git or the repository is missing; "date": "2026-01-31T12:00:00Z"}.
nlohmann::ordered_json commit_and_date(const std::filesystem::path& sources);

/// {path -> git blob id} of a variant's kernel file and of the .cuh files it includes that hold kernels too: what `git hash-object`
/// says about them as they are now; null where that is not known.
nlohmann::ordered_json blob_ids(const std::filesystem::path& sources, const std::string& kernel);

}  // namespace flash
