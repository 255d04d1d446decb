// The environment variables that the programs read.
#pragma once

#include <string>

namespace flash {

/// UsageError if a variable is set that starts with FLASH_ and is none of the project, as a misspelt one would be, or if one of the
/// simulator has a value that is not allowed. The programs of others are left alone: FLASH_ATTENTION_... and FLASH_ATTN_...
void check_environment();

/// For the end of --help: all of them with their values.
std::string environment_help();

}  // namespace flash
