// The mbarriers of a block (PTX ISA, "mbarrier"): phases, arrivals, bytes.
#pragma once

#include "common/machine/engine/observers.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace flash::machine {

class Mbarriers {
 public:
  Mbarriers(Scheduler& scheduler, Observers& observers) : scheduler_(scheduler), observers_(observers) {}

  void start_block() { barriers_.clear(); }
  /// What is left in one at the end of the block; throws.
  void end_block() const;
  /// All threads of the block have met.
  void synchronised();

  void init(void* address, int arrivals, Site);
  void fence_init();
  void arrive(const void* address, const int* expected_bytes, Site);
  void wait(const void* address, int parity, Site);

  /// A copy is issued for the phase that is not over; returns its number.
  std::int64_t expect_copy(const void* address, Site);
  int number(const void* address) const;
  bool awaited(const void* address) const { return !barriers_.at(address).waiting.empty(); }
  /// Has the thread waited for the phase, or is it, as far as the race detector knows, ordered behind one that has?
  bool sees(int thread, const void* address, std::int64_t phase);
  /// The copy's bytes have come.
  void complete(const void* address, std::int64_t phase, int bytes, Site copy);
  /// What the running thread has done lies before the end of the phase.
  void publish(const void* address);

  /// For a deadlock: what the mbarriers that threads wait for lack.
  std::string missing() const;

 private:
  struct Barrier {
    Site site;
    int number = 0;  ///< counted as they were initialised
    int arrivals = 0, pending = 0;
    int initialiser = 0;
    bool fenced = false, known = false;                    ///< its initialisation: fenced; and then a barrier of the block
    std::int64_t phase = 0;                                ///< that is not over
    std::int64_t bytes = 0;                                ///< expected and not yet come
    std::vector<std::int64_t> thread_waited, warp_waited;  ///< the last phase; nothing_yet
    std::vector<Thread*> waiting;
    std::vector<std::int64_t> seen;                      ///< by each thread: the last phase of which sees() is true
    std::array<std::vector<std::uint32_t>, 4> clock_of;  ///< [phase % 4][thread]: the thread's, when it had waited
    unsigned char tokens[2] = {};                        ///< for who looks for races: of even and odd phases
  };
  static constexpr std::int64_t nothing_yet = -2;

  Barrier& at(const void* address, const char* what, Site);
  std::int64_t phase_meant(const Barrier&, int parity, Site) const;
  void end_phase_if_complete(Barrier&);
  static std::string lacks(const Barrier&);
  static std::string name(const Barrier&);

  Scheduler& scheduler_;
  Observers& observers_;
  std::map<const void*, Barrier> barriers_;
};

}  // namespace flash::machine
