// Groups of warps: named barriers, and the registers that setmaxnreg moves between them.
#pragma once

#include "common/simt/site.hpp"

#include <array>
#include <string>
#include <vector>

namespace flash::machine {

using simt::Site;
class Worker;
struct Thread;

/// Barriers 1 to 15 of a block (PTX ISA, "bar").
class NamedBarriers {
 public:
  explicit NamedBarriers(Worker& worker) : worker_(worker) {}
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
  Worker& worker_;
  std::array<Barrier, 16> barriers_;
};

/// Registers of the block's threads (PTX ISA, "setmaxnreg"). At the launch they are dealt out evenly.
class Registers {
 public:
  explicit Registers(Worker& worker) : worker_(worker) {}
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

  Worker& worker_;
  std::vector<Owner> owners_;  ///< by thread
  int free_ = 0;
};

}  // namespace flash::machine
