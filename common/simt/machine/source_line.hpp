// Places in the source, for messages.
#pragma once

#include "common/simt/machine/watch.hpp"

#include <string>

namespace flash::machine {

/// "04_fa1_forward/2_tiled.cuh:37". A return address is looked up in the program's line table by binutils' addr2line (macOS: atos), where
/// it is installed; of the functions that were inlined there, the innermost that is not the simulator's counts.
std::string source_line(const CodePlace&);

/// The same of the running call that returns to `from`. If all of its function is the simulator's, as of a view that is not inlined, of its callers.
std::string source_line_of_call(const void* from);

}  // namespace flash::machine
