// Places in the source, for messages.
#pragma once

#include "common/machine/engine/instrumentation.hpp"
#include "common/machine/engine/race_detector.hpp"

#include <string>

namespace flash::machine {

/// A line of a kernel, and the kernel's line that led there if that is in another file, or of a plain file in another function.
struct SourceLine {
  std::string line, caller;  ///< "04_fa1_forward/4_tiled.cuh:37"; caller: "" if there is none, or it is not known
};

/// "04_fa1_forward/4_tiled.cuh:37". A return address is looked up in the program's line table by binutils' addr2line (macOS: atos), where
/// it is installed; of the functions that were inlined there, the innermost that is not the simulator's counts.
SourceLine source_line(const CodePlace&);

/// The same of the running call that returns to `from`; null: of this one. If all of its function is the simulator's, as of a view that is not inlined, of its callers.
SourceLine source_line_of_call(const void* from);

/// ", called from g.cuh:8, called from g.cuh:30": the lines of other functions of the kernel that led to this one.
std::string caller_of(simt::Site, const CallPlace&);

/// Is that the machine's own code, which nobody wants to read of? Then its caller's line counts.
bool is_machine(const char* file);

/// "f.cuh:7", "f.cuh:7, called from g.cuh:8"
std::string words(const SourceLine&);

}  // namespace flash::machine
