// The instructions of hopper.hpp and wgmma.hpp: what each does lies in machine/.
#include "common/machine/cpu/hopper.hpp"

#include "common/machine/cpu/shared_view.hpp"
#include "common/machine/cpu/thread.hpp"
#include "common/machine/cpu/wgmma.hpp"
#include "common/machine/engine/hopper.hpp"
#include "common/machine/engine/sanitizer.hpp"
#include "common/machine/engine/worker.hpp"

namespace flash {
inline namespace simt {
namespace {

using machine::Hopper;
using machine::sanitizer::Unwatched;

/// The block's, for an instruction of so many steps. GPUs before Hopper have none but mbarriers.
Hopper& hopper(const char* what, Site site, int sm = 90) {
  machine::Worker& worker = machine::running_worker(what);
  if (worker.block.options.target_sm < sm)
    fail(RuleId::unsupported, site,
         std::string(what) + " needs sm_" + std::to_string(sm) + ", the target is sm_" +
             std::to_string(worker.block.options.target_sm));
  worker.scheduler.count_steps(machine::warp_operation_steps, site);
  return worker.hopper();
}

}  // namespace

unsigned shared_address(const void* address, Site site) {
  const Unwatched unwatched;
  const machine::SharedMemory& shared = machine::running_worker("a tile's address").block.shared;
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(address) - shared.data());
  if (offset >= shared.bytes())
    fail(RuleId::out_of_bounds, site, "a tile that does not lie in the launch's dynamic shared memory");
  return static_cast<unsigned>(offset);
}

void mbarrier_init(Mbarrier& barrier, int arrivals, Site site) {
  const Unwatched unwatched;
  hopper("mbarrier_init", site, 75).mbarriers.init(&barrier, arrivals, site);
}
void fence_mbarrier_init(Site site) {
  const Unwatched unwatched;
  hopper("fence_mbarrier_init", site, 75).mbarriers.fence_init();
}
void mbarrier_arrive(Mbarrier& barrier, Site site) {
  const Unwatched unwatched;
  hopper("mbarrier_arrive", site, 75).mbarriers.arrive(&barrier, nullptr, site);
}
void mbarrier_arrive_expect_tx(Mbarrier& barrier, int bytes, Site site) {
  const Unwatched unwatched;
  hopper("mbarrier_arrive_expect_tx", site).mbarriers.arrive(&barrier, &bytes, site);
}
void mbarrier_wait(Mbarrier& barrier, int parity, Site site) {
  const Unwatched unwatched;
  machine::running_worker("mbarrier_wait").scheduler.current().called = FLASH_CALLED_FROM;
  hopper("mbarrier_wait", site, 75).mbarriers.wait(&barrier, parity, site);
}

TensorMap tensor_map(const TensorRef& t, int box_rows) {
  require_tensor_map(t, box_rows);
  return {static_cast<std::byte*>(t.data), t.name,  traffic_id(t), {t.shape[3], t.shape[2], t.shape[1], t.shape[0]},
          tensor_map_strides(t),           box_rows};
}

void start_load(void* panel, const TensorMap& map, Mbarrier& barrier, const BoxAt& at, Site site) {
  const Unwatched unwatched;
  hopper("tma_load", site).copies.load(panel, map.box_rows * 128, &map, at, nullptr, &barrier, site);
}
void start_load(void* to, const BulkMemory& from, int bytes, Mbarrier& barrier, Site site) {
  const Unwatched unwatched;
  hopper("bulk_load", site).copies.load(to, bytes, nullptr, {}, &from, &barrier, site);
}
void publish(const Mbarrier& barrier) {
  const Unwatched unwatched;
  machine::running_worker("a load").hopper().mbarriers.publish(&barrier);
}
void start_store(const TensorMap& map, const void* panel, const BoxAt& at, Site site) {
  const Unwatched unwatched;
  hopper("tma_store", site).copies.store(panel, map.box_rows * 128, &map, at, nullptr, false, site);
}
void start_store(const BulkMemory& to, const void* from, int bytes, bool add, Site site) {
  const Unwatched unwatched;
  hopper(add ? "bulk_reduce_add" : "bulk_store", site).copies.store(from, bytes, nullptr, {}, &to, add, site);
}
void bulk_commit(Site site) {
  const Unwatched unwatched;
  hopper("bulk_commit", site).copies.commit();
}
void wait_for_stores(int newest, bool complete, Site site) {
  const Unwatched unwatched;
  hopper(complete ? "bulk_wait" : "bulk_wait_read", site).copies.wait(newest, complete, site);
}

void fence_proxy_async(Site site) {
  const Unwatched unwatched;
  hopper("fence_proxy_async", site).proxy.fence(machine::running_worker("fence_proxy_async").current().number);
}

void griddepcontrol_wait() {
  const Unwatched unwatched;
  machine::running_worker("griddepcontrol_wait").observers.wait_for_previous_kernel();
}

// Older GPUs have named barriers, too.
void named_barrier(int id, int threads, bool wait, Site site) {
  const Unwatched unwatched;
  machine::Worker& worker = machine::running_worker("a named barrier");
  worker.scheduler.count_steps(machine::barrier_steps, site);
  worker.hopper().named_barriers.come(id, threads, wait, site);
}
void named_barrier_sync(int id, int threads, Site site) { named_barrier(id, threads, true, site); }
void named_barrier_arrive(int id, int threads, Site site) { named_barrier(id, threads, false, site); }

void stmatrix(LdmatrixLane& lane, Site site) {
  const Unwatched unwatched;
  hopper("stmatrix", site);
  warp_operation({WarpOperation::stmatrix, 0xffffffffu, reinterpret_cast<std::uintptr_t>(&lane)}, site);
  for (int m = 0; m < lane.count; ++m) machine::watch_view(site, lane.source[m], 4, true);
}

void set_registers(int registers, bool more, Site site) {
  const Unwatched unwatched;
  hopper(more ? "setmaxnreg_inc" : "setmaxnreg_dec", site).registers.set(registers, more, site);
}

void wgmma_issue(const WgmmaThread& part, Site site) {
  const Unwatched unwatched;
  hopper("wgmma", site).warpgroups.issue(part, site);
}
void wgmma_fence(Site site) {
  const Unwatched unwatched;
  hopper("wgmma_fence", site).warpgroups.fence();
}
void wgmma_commit(Site site) {
  const Unwatched unwatched;
  hopper("wgmma_commit", site).warpgroups.commit(site);
}
void wgmma_wait_for(int newest, const float* const* complete, int count, Site site) {
  const Unwatched unwatched;
  hopper("wgmma_wait", site).warpgroups.wait(newest, complete, count, site);
}

}  // namespace simt
}  // namespace flash
