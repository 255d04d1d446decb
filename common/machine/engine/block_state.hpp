// The block that runs: its shared memory, and what is counted of it.
#pragma once

#include "common/machine/cpu/element_ref.hpp"
#include "common/machine/cpu/launch.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/engine/access_log.hpp"
#include "common/machine/engine/shared_memory.hpp"

#include <cstdint>
#include <vector>

namespace flash::machine {

using simt::KernelCall;

struct BlockState {
  const KernelCall* kernel = nullptr;
  Options options;
  std::uint64_t number = 0;
  SharedMemory shared;
  StaticSharedUse static_use;
  AccessLog shared_log, global_log;  ///< what the warps access between two barriers, in counting runs
  Counters counters;                 ///< of all blocks so far, as is the traffic
  std::vector<Traffic> of_id;

  void start_launch(const KernelCall&, const Options&);
  void start_block(std::uint64_t block);
  Traffic& traffic(int id) { return of_id[static_cast<std::size_t>(id)]; }
  MemoryRange dynamic_shared() const;
  void empty_logs();
  void count_logged_accesses();
};

/// The number of ids that traffic_id() has given out.
int traffic_ids();
/// The tensors they stand for.
std::vector<std::string> traffic_names();

}  // namespace flash::machine
