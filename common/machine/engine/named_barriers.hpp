// Barriers 1 to 15 of a block (PTX ISA, "bar"), at which some of its warps meet.
#pragma once

#include "common/machine/engine/observers.hpp"

#include <array>
#include <string>
#include <vector>

namespace flash::machine {

class NamedBarriers {
 public:
  NamedBarriers(Scheduler& scheduler, Observers& observers) : scheduler_(scheduler), observers_(observers) {}
  void start_block() { barriers_ = {}; }
  void end_block() const;
  void come(int id, int threads, bool wait, Site);
  std::string missing() const;

 private:
  struct Barrier {
    int threads = 0, come = 0;  ///< threads: 0 while nobody has come
    Site site;                  ///< of the first that came
    std::vector<Thread*> waiting;
    int generation = 0;
    unsigned char tokens[2] = {};
  };
  Scheduler& scheduler_;
  Observers& observers_;
  std::array<Barrier, 16> barriers_;
};

}  // namespace flash::machine
