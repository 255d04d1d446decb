// Registers of the block's threads, which setmaxnreg moves between warpgroups (PTX ISA, "setmaxnreg"). At the launch they are dealt out evenly.
#pragma once

#include "common/machine/engine/observers.hpp"

#include <string>
#include <vector>

namespace flash::machine {

class RegisterPool {
 public:
  RegisterPool(Scheduler& scheduler, Observers& observers) : scheduler_(scheduler), observers_(observers) {}
  void start_block(std::size_t threads);
  void set(int registers, bool more, Site);
  /// Warpgroups of which a part alone has called setmaxnreg; throws.
  void end_block() const;
  std::string missing() const;

 private:
  struct Owner {
    int registers = 0;
    int wanted = 0;  ///< waits for so many
    Site site;       ///< of its last setmaxnreg
  };
  void serve();

  Scheduler& scheduler_;
  Observers& observers_;
  std::vector<Owner> owners_;  ///< by thread
  int free_ = 0;
};

}  // namespace flash::machine
