// The copies of the TMA: loads into shared memory, which an mbarrier counts, stores and reductions from there, in groups that a thread waits for.
#pragma once

#include "common/machine/cpu/hopper.hpp"
#include "common/machine/engine/async_proxy.hpp"
#include "common/machine/engine/block_state.hpp"
#include "common/machine/engine/mbarriers.hpp"
#include "common/machine/engine/observers.hpp"

#include <cstdint>
#include <vector>

namespace flash::machine {

using simt::BoxAt;
using simt::BulkMemory;
using simt::TensorMap;

class Copies {
 public:
  Copies(Scheduler& scheduler, Observers& observers, BlockState& block, Mbarriers& mbarriers, AsyncProxy& proxy)
      : scheduler_(scheduler), observers_(observers), block_(block), mbarriers_(mbarriers), proxy_(proxy) {}

  void start_block(std::size_t threads);
  /// Throws if a thread that ends has left a store that nobody waited for.
  void thread_exits(const Thread&) const;
  /// Stores whose shared memory was read are made now. Throws if a load has not landed.
  void end_block();

  /// Exactly one of map and from is there.
  void load(void* to, int bytes, const TensorMap* map, const BoxAt& at, const BulkMemory* from, const void* barrier, Site);
  void store(const void* from, int bytes, const TensorMap* map, const BoxAt& at, const BulkMemory* to, bool add, Site);
  void commit();
  /// For all but the `newest` groups of the running thread.
  void wait(int newest, bool complete, Site);

 private:
  /// A run of adjacent bytes that a copy moves: from or to global memory, null where the tensor ends.
  struct Piece {
    std::byte* global;
    std::size_t offset;  ///< in the copy's shared memory
    std::size_t bytes;
  };
  struct Load {
    std::byte* to;
    int bytes;
    std::vector<Piece> pieces;
    const void* barrier;
    std::int64_t phase;
    Site site;
    int flight;          ///< in AsyncProxy
    const char* tensor;  ///< null: has no name
  };
  struct Store {
    const std::byte* from;
    std::vector<Piece> pieces;
    std::vector<std::byte> data;  ///< once it was read
    bool add, read = false;
    Site site;
    int group, flight;
    const char* tensor;  ///< null: has no name
  };
  struct Issuer {
    std::vector<Store> stores;
    int groups = 0;  ///< closed so far
  };

  static std::vector<Piece> pieces_of(const TensorMap&, const BoxAt&);
  void check(const char* what, const void* shared, int bytes, const BoxAt* box, const void* global, Site) const;
  void count(const std::vector<Piece>&, int id, bool read, bool written, Site);
  void land(const Load&);
  void trace(const char* event, const Load&) const;
  void read(Store&);
  void trace(const char* event, const Store&) const;
  void finish(const Store&) const;
  void wait_now(const Thread&, int newest, bool complete);

  Scheduler& scheduler_;
  Observers& observers_;
  BlockState& block_;
  Mbarriers& mbarriers_;
  AsyncProxy& proxy_;
  std::vector<Issuer> issuers_;  ///< by thread
  int in_flight_ = 0;            ///< loads
  Site last_load_;
};

}  // namespace flash::machine
