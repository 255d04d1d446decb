// Who has to do with each 16 bytes of dynamic shared memory: threads, which store and read at once, and the TMA and wgmma, which do it later.
//
// Threads work through the generic proxy, the TMA and wgmma through the async proxy (PTX ISA, "Async proxy"). Of the order between the two this
// follows: what a thread stores, the async proxy may read, or overwrite, after a fence_proxy_async() between the two, by whatever thread; what a
// load brings, threads may read after the mbarrier. It asks for no fence where a load overwrites what threads have read. The race detector knows exactly what
// lies between; without one, a fence does if it was executed in between, and who reads after a load has landed may do so.
#pragma once

#include "common/machine/cpu/site.hpp"
#include "common/machine/engine/device_memory.hpp"

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace flash::machine {

using simt::Site;

class Mbarriers;

class AsyncProxy {
 public:
  explicit AsyncProxy(Mbarriers& mbarriers) : mbarriers_(mbarriers) {}

  static constexpr std::size_t unit_bytes = 16;
  using Units = std::vector<std::uint32_t>;

  void start_block(MemoryRange dynamic_shared, std::size_t threads);

  /// What has been stored so far was stored by threads that nobody looked at: any fence will do for it.
  void assume_stored();

  bool contains(const void* address) const {
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    return at >= memory_.begin && at < memory_.end;
  }
  std::uint32_t unit_of(const void* address) const;
  Units units_of(const void* address, std::size_t bytes) const;
  std::byte* address_of(std::uint32_t unit) const;

  /// The TMA or wgmma (`what`) reads these units from now on until end_reading(). Throws if it may not.
  int begin_reading(int thread, const char* what, Site, Units);
  void end_reading(int reading);
  /// The TMA writes them.
  int begin_load(int thread, Site, Units);
  void end_load(int load, const void* mbarrier, std::int64_t phase);

  /// Why a thread may not access these bytes of the dynamic shared memory, "" if it may. `from`: its code.
  std::string access(int thread, const void* address, std::size_t bytes, bool write, const void* from);
  /// What the thread has stored, or knows to be stored, is visible to the async proxy.
  void fence(int thread);

 private:
  struct Time {
    std::uint32_t fences = 0;  ///< of the block so far
    std::uint32_t clock = 0;   ///< the writer's, if the race detector counts it
  };
  struct Unit {
    std::uint16_t writer = 0;     ///< 1 + the thread that has stored to it
    std::uint16_t readings = 0;   ///< that are in flight
    std::uint16_t loads = 0;      ///< likewise
    const void* place = nullptr;  ///< of the store
    Time stored, fenced;          ///< by the writer
    // What a load has brought, until a thread stores there; the phase says who may look.
    const void* mbarrier = nullptr;
    std::int64_t phase = 0;
    Site load;
  };
  struct Fence {
    Time at;
    std::vector<std::uint32_t> known;  ///< up to which time of each thread its stores lie before; empty without a race detector
  };
  struct Flight {
    const char* what;
    Site site;
    Units units;
  };
  static constexpr std::uint16_t unknown = 0xFFFF;
  using Flights = std::unordered_map<int, Flight>;
  static std::string line_of(const Flights&, std::uint32_t unit);
  static std::string unfenced(const Unit&);
  Time now(int thread) const;
  bool is_visible(const Unit&, int thread) const;
  /// Why the thread, for itself or for the TMA or wgmma, may not touch what a load has brought, "" if it may.
  std::string not_awaited(const Unit&, int thread) const;

  Mbarriers& mbarriers_;
  MemoryRange memory_;
  std::vector<Unit> units_;
  std::vector<Units> stored_;  ///< by each thread since its last fence
  std::vector<Fence> fences_;  ///< each thread's last
  std::uint32_t fence_count_ = 0;
  Flights readings_, loads_;
  int next_ = 0;
  bool any_unknown_ = false;
};

}  // namespace flash::machine
