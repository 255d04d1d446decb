// Who does what when in the first block of each launch: FLASH_SIMT_TRACE. A line of JSON for each event, in the order in which the simulator
// comes to them, which is no time: it runs one thread until it waits, then another, and a load lands when no thread can go on.
#pragma once

#include "common/machine/cpu/launch.hpp"
#include "common/machine/cpu/site.hpp"

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>

namespace flash::machine {

using simt::KernelCall;
using simt::Site;

class Trace {
 public:
  struct Number {
    const char* name;
    std::int64_t value;
  };

  /// May a trace be written there? Where nothing is yet, over an empty file, and over another trace.
  static bool can_be(const std::string& path);
  /// Where the next launch writes to; "": nowhere. Another path than that of the launch before begins a file.
  static void open(const std::string& path);
  /// For the first block of a launch; null if it is not recorded.
  static Trace* start_block(const KernelCall&);
  void end_block();

  /// What the lanes of a warp do alike is one event.
  void add(const char* event, int warp, std::initializer_list<Number>, Site, const char* tensor = nullptr);

 private:
  std::set<std::string> lines_;  ///< of the block
};

}  // namespace flash::machine
