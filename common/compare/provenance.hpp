// Where a saved figure comes from, so that a stale one shows.
#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>

namespace flash {

/// {"commit": what the environment variable FLASH_COMMIT says, or else the id of HEAD, with "-dirty" if files have changed since, null
/// where git or the repository is missing; "date": "2026-01-31T12:00:00Z"}.
nlohmann::ordered_json commit_and_date(const std::filesystem::path& sources);

/// 16 hexadecimal digits for what a source file says to the compiler: a hash of it without comments (//) and white space, so that a
/// better comment does not make a measured kernel another one. rows/files.py has the same.
std::string code_id(const std::string& text);

/// {path -> code_id()} of a variant's kernel file and of the .cuh files it includes that are of stages or hold kernels too; null
/// for a file that is not there.
nlohmann::ordered_json code_ids(const std::filesystem::path& sources, const std::string& kernel);

}  // namespace flash
