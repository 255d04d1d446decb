// The rules of CUDA that the simulator enforces: an id for each, which programs compare, where a message is for people.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flash {
inline namespace simt {

enum class RuleId : std::uint8_t {
  absent_lane,         ///< a warp operation names a lane that is elsewhere, has exited or does not exist
  bad_address,         ///< there is no memory at an address
  bad_argument,        ///< an instruction takes no such number, size or shape
  deadlock,            ///< threads wait for something that never comes
  divergent_barrier,   ///< not all threads of the block come to the same __syncthreads()
  division,            ///< of integers: by zero, or with a quotient that overflows
  endless_loop,        ///< a thread goes on and on
  foreign_memory,      ///< another thread's local variable, or memory of the host or the simulator
  in_flight,           ///< memory or registers are accessed while asynchronous work uses them
  launch_limits,       ///< a launch asks for more than the GPU has
  mbarrier,            ///< not initialised, in another phase, or with arrivals or bytes that nobody expects
  misaligned,          ///< an address is no multiple of what the access needs
  missing_fence,       ///< of the async proxy, of an mbarrier's initialisation, or of wgmma
  named_barrier,       ///< its threads disagree about the count, or too few come
  never_written,       ///< no thread has written an element of an output
  not_awaited,         ///< a thread or a block ends before its asynchronous work does
  out_of_bounds,       ///< an element that does not exist
  race,                ///< one thread reads and another one writes, in no order
  read_before_atomic,  ///< a plain read meets atomics, and the thread goes on by an atomic of its own: a remark
  same_value,          ///< two threads write, in no order, and each of them the same: a remark
  stack_overflow,      ///< local variables and calls need too much memory
  thread_order,        ///< the result depends on the order of the threads
  ticket,              ///< an atomic and a barrier order blocks, and no fence behind the atomic: a remark
  trap,                ///< the kernel calls __trap()
  unsupported,         ///< the target GPU, or the simulator, does not have it
  unwritten_read,      ///< a thread reads memory that no thread has written
  use_after_free,      ///< memory that the program has freed
  warpgroup,           ///< the threads of a warpgroup do not act together
  write_race,          ///< two threads write, in no order
};

/// In the order of RuleId.
inline constexpr const char* rule_names[] = {
    "absent_lane",    "bad_address", "bad_argument",  "deadlock",    "divergent_barrier",  "division",       "endless_loop",
    "foreign_memory", "in_flight",   "launch_limits", "mbarrier",    "misaligned",         "missing_fence",  "named_barrier",
    "never_written",  "not_awaited", "out_of_bounds", "race",        "read_before_atomic", "same_value",     "stack_overflow",
    "thread_order",   "ticket",      "trap",          "unsupported", "unwritten_read",     "use_after_free", "warpgroup",
    "write_race"};
static_assert(sizeof rule_names / sizeof *rule_names == static_cast<std::size_t>(RuleId::write_race) + 1);

constexpr const char* name_of(RuleId rule) { return rule_names[static_cast<std::size_t>(rule)]; }

}  // namespace simt
}  // namespace flash
