// Products of warpgroups (PTX ISA, "wgmma"): issued, in flight, computed. Each warp computes its 16 rows when it has waited for them, as hardware
// does; what the four warps have to have in common is compared.
#pragma once

#include "common/machine/cpu/wgmma.hpp"
#include "common/machine/engine/async_proxy.hpp"
#include "common/machine/engine/block_state.hpp"
#include "common/machine/engine/observers.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace flash::machine {

using simt::MmaType;
using simt::WgmmaThread;

/// What accumulators are in flight.
constexpr unsigned poison = 0xFFFFFFFFu;
inline bool is_poison(float x) { return std::bit_cast<unsigned>(x) == poison; }

class Warpgroups {
 public:
  Warpgroups(Scheduler& scheduler, Observers& observers, BlockState& block, AsyncProxy& proxy)
      : scheduler_(scheduler), observers_(observers), block_(block), proxy_(proxy) {}

  void start_block(std::size_t threads);
  void thread_exits(const Thread&) const;
  void end_block() const;

  void issue(const WgmmaThread&, Site);
  void fence();
  void commit(Site);
  void wait(int newest, const float* const* complete, int count, Site);

  bool any_in_flight() const { return in_flight_ > 0; }
  /// The accumulators of a thread's product in flight that these bytes are of, or null: the thread may touch them. Inline, since every access
  /// of a kernel asks while any_in_flight().
  const float* in_flight_at(int thread, const void* address, std::size_t bytes) const {
    const auto* const at = static_cast<const std::byte*>(address);
    for (const auto& [begin, end] : lanes_[static_cast<std::size_t>(thread)].in_flight) {
      if (at < reinterpret_cast<const std::byte*>(end) && at + bytes > reinterpret_cast<const std::byte*>(begin)) return begin;
    }
    return nullptr;
  }
  /// Why the thread may not touch them.
  std::string still_in_flight(int thread, const float* accumulators) const;

 private:
  /// What the threads of a warpgroup share of a product.
  struct Product {
    Site site;
    MmaType type{};
    int n = 0;
    bool accumulate = false, a_shared = false;
    Major a_major{}, b_major{};
    std::uint64_t a = 0, b = 0;                     ///< descriptors
    AsyncProxy::Units a_units, b_units;             ///< element by element: chunk c of A's row m, or of B's column n
    std::vector<float> A, B;                        ///< [64][16] and [16][n], as they were when it was issued
    std::vector<std::uint16_t> words;               ///< all that it read then
    std::array<std::vector<MemoryRange>, 4> reads;  ///< by each warp
    int reading = 0, warps_done = 0;
  };
  struct Group {
    std::deque<Product> products;
    std::size_t first = 0;  ///< number of the front
  };
  /// Registers that accumulate, by their address.
  struct Accumulator {
    std::vector<float> value;   ///< what they will be
    std::vector<float> fenced;  ///< what they were at the last fence
    int registers = 0, in_flight = 0;
    Site site;            ///< of the last product
    int fences_then = 0;  ///< of the thread, when it was last waited for
  };
  struct Lane {
    std::size_t issued = 0, done = 0;
    std::vector<std::size_t> groups;  ///< products issued when it was closed
    struct Part {
      float* d;
      const unsigned* a;
      std::array<unsigned, 4> a_then;
    };
    std::deque<Part> parts;  ///< in flight
    std::map<const float*, Accumulator> accumulators;
    std::vector<std::pair<const float*, const float*>> in_flight;  ///< begin and end of accumulators
    std::map<const unsigned*, std::array<unsigned, 4>>
        operands;  ///< A in registers, and its content at the last fence or product
    int fences = 0;
    // Of the wait that it is in.
    int newest = 0;
    bool waits = false;
  };

  Product make_product(const WgmmaThread&, Site) const;
  AsyncProxy::Units units_of(std::uint64_t descriptor, Major, int lines, Site) const;
  std::vector<std::uint16_t> words_of(const Product&) const;
  std::vector<MemoryRange> reads_of(const Product&, std::size_t warp) const;
  void join(const WgmmaThread&, Group&, Lane&, Site);
  void take_accumulator(const WgmmaThread&, Lane&, Site);
  void take_operand(const WgmmaThread&, Lane&, Site) const;
  std::size_t goal(const Lane&) const;
  void run(int warp, Site);
  void compute(int warp, const Product&, std::size_t number);
  void note_reads(const Product&, int warp) const;
  Lane& lane(int thread) { return lanes_[static_cast<std::size_t>(thread)]; }

  Scheduler& scheduler_;
  Observers& observers_;
  BlockState& block_;
  AsyncProxy& proxy_;
  std::vector<Lane> lanes_;    ///< by thread
  std::vector<Group> groups_;  ///< warpgroups
  int in_flight_ = 0;          ///< accumulators, of all lanes
};

}  // namespace flash::machine
