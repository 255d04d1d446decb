// A plain .cu file's program on the simulator: what its report, its launches and CUDA's runtime share.
#pragma once

#include <cuda.h>

#include "common/machine/cpu/allocations.hpp"
#include "common/machine/cpu/findings.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/engine/messages.hpp"
#include "common/machine/error.hpp"

#include <list>

namespace flash::plain {

struct Finding {
  std::string rule, text;
  std::vector<std::string> lines;
  bool of_barrier = false;  ///< a barrier of the block would order the two lines
};

struct Kernel {
  std::string name;
  dim3 grid, block;
  std::uint64_t launches = 0, watched = 0;
  double seconds = 0;  ///< of watched launches
  bool complete = true;
  std::vector<Finding> findings, remarks;
  std::uint64_t first_found = 0;  ///< the launch, among those watched, of the first race or unwritten read; 0: none
  std::string after;              ///< a kernel that had died before the first launch of this one
  Counters counters;
  std::vector<ArrayConflicts> conflicts;
};

// Kept until the process is gone: the report is made when destructors run.
struct State {
  std::list<Kernel> kernels;
  std::vector<Finding> of_host;  ///< calls of the runtime with wrong arguments
  cudaError_t error = cudaSuccess;
  std::size_t shared_allowed = 48 * 1024;  ///< bytes of dynamic shared memory: more by cudaFuncSetAttribute()
  std::string died;                        ///< the last kernel that did
  bool reported = false;
};
State& state();
Kernel& kernel_named(const std::string&);
void add(std::vector<Finding>&, Finding);
/// The lines that a message ends with; of threads that wait, all that they wait at.
std::vector<std::string> lines_in(const std::string& text);

/// Before the first allocation or launch.
void prepare();
void prepare_report();
/// After a launch, whose statics the report needs.
void report_at_exit();
/// Ends the program, with exit code 2.
[[noreturn]] void stop_unsupported(const std::string& line);

inline double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
inline bool asked(const char* variable) { return std::getenv(variable) != nullptr; }
inline std::string number(std::uint64_t n) { return std::to_string(n); }

}  // namespace flash::plain
