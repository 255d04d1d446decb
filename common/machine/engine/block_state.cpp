#include "common/machine/engine/block_state.hpp"

#include "common/machine/cpu/thread.hpp"

namespace flash::machine {

void BlockState::start_launch(const KernelCall& call, const Options& chosen) {
  kernel = &call;
  options = chosen;
  counters = {};
  of_id.assign(static_cast<std::size_t>(traffic_ids()), {});
}

void BlockState::start_block(std::uint64_t block) {
  number = block;
  const dim3& grid = kernel->shape.grid;
  simt::blockIdx = {static_cast<unsigned>(block % grid.x), static_cast<unsigned>(block / grid.x % grid.y),
                    static_cast<unsigned>(block / grid.x / grid.y)};
  shared.start_block(kernel->shape.shared_bytes);
  poison_static_shared();
  if (block == 0) static_use.start_block();
  empty_logs();
  const dim3& threads = kernel->shape.block;
  ++counters.blocks;
  counters.threads += std::uint64_t{threads.x} * threads.y * threads.z;
}

MemoryRange BlockState::dynamic_shared() const {
  const auto begin = reinterpret_cast<std::uintptr_t>(shared.data());
  return {begin, begin + shared.bytes()};
}

void BlockState::empty_logs() {
  const dim3& threads = kernel->shape.block;
  const int warps = static_cast<int>((threads.x * threads.y * threads.z + 31) / 32);
  shared_log.reset(warps);
  global_log.reset(warps);
}

void BlockState::count_logged_accesses() {
  shared_log.flush([&](const AccessLog::Key& key, const WarpAccess& access) {
    counters.bank_conflicts += bank_conflicts(access, key.bytes);
  });
  global_log.flush([&](const AccessLog::Key& key, const WarpAccess& access) {
    Traffic& moved = of_id[key.object];
    (key.write ? moved.written_sectors : moved.read_sectors) += sectors(access, key.bytes);
  });
}

}  // namespace flash::machine
