// Words for messages, and what a warp operation computes.
#pragma once

#include "common/machine/engine/threads.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace flash::machine {

/// "__shfl_xor_sync", ...
const char* name_of(WarpOperation);
const char* name_of(BarrierKind);

/// "lanes 0..3, 7" for a mask.
std::string lanes_of(unsigned mask);

/// "(5,2,0)": threadIdx or blockIdx.
std::string words(const uint3&);

/// "file:line", the file as it is called in the project.
std::string words(Site);
/// A path without the project's folder, if it begins so.
std::string without_source_dir(std::string_view path);
/// "0x7f01"
std::string hexadecimal(std::uintptr_t);

/// Where threads are: "threads 64..76 wait in __syncwarp at file:line, thread 77 waits in __syncthreads at file:line, the rest exited".
std::string waits(const std::vector<Thread*>&);

/// Sets the result of each lane. They all call the same operation with the same mask. Lenient: what a lane reads from one that is not there is NaN.
void compute(WarpOperation, const std::vector<Thread*>& lanes, bool lenient);

}  // namespace flash::machine
