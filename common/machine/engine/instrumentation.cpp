// The functions that the compiler calls in kernels for -fsanitize=thread. Names and parameters are those of ThreadSanitizer's library (LLVM,
// compiler-rt/lib/tsan/rtl/tsan_interface.h), which is not linked.
#include "common/machine/engine/instrumentation.hpp"

#include "common/machine/engine/hopper.hpp"
#include "common/machine/engine/module.hpp"
#include "common/machine/engine/reach.hpp"
#include "common/machine/engine/sanitizer.hpp"
#include "common/machine/engine/source_line.hpp"
#include "common/machine/engine/worker.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace flash::machine {

FLASH_MACHINE_VARIABLE constinit thread_local Instruments instruments;

namespace {

Region outside_device{0, std::numeric_limits<std::size_t>::max()};  // may wrap around

/// Tells the race detector, until it has seen enough or memory is full. Nothing may be thrown into a kernel here: the compiler does not expect it.
void watch_access(const void* address, std::size_t bytes, AccessKind kind, const CodePlace& place) {
  Worker* const worker = Worker::running();
  if (worker == nullptr) return;  // the host's part of a kernel file
  bool goes_on = false;
  try {
    goes_on =
        instruments.watch->access(worker->current().number, reinterpret_cast<std::uintptr_t>(address), bytes, kind, place);
  } catch (const std::bad_alloc&) {
    instruments.watch->give_up();
  }
  if (instruments.watch->left_array()) worker->hold_against_reach(address, bytes, kind, place);
  if (!goes_on) instruments.watch = nullptr;
}

/// Each announced byte may be accessed once, those of an atomic as often as it takes.
inline bool is_announced(std::uintptr_t address, std::size_t bytes, AccessKind kind) {
  Announced& announced = instruments.announced;
  if (!announced.bytes.holds(address, bytes)) return false;
  if (announced.kind == AccessKind::atomic) return kind >= AccessKind::atomic || kind == AccessKind::load;
  if (announced.kind != kind) return false;
  if (announced.left < bytes) return false;
  announced.left -= bytes;
  return true;
}

inline bool may_access(std::uintptr_t address, std::size_t bytes, AccessKind kind) {
  if (instruments.stack.holds(address) || instruments.dynamic.holds(address, bytes)) return true;
  if (instruments.locals.holds(address, bytes)) return reads(kind) || !instruments.machine.holds(address);
  return is_announced(address, bytes, kind);
}

}  // namespace

void keep_host_out(Region device) {
  outside_device = {device.begin + device.bytes, 0 - device.bytes};
  if (Worker::running() == nullptr) instruments.stack = outside_device;
}

void reset_instruments() {
  instruments = {};
  instruments.stack = outside_device;
}

CallPlace call_place(const void* returns_to, const void* frame) {
  CallPlace place{reinterpret_cast<std::uintptr_t>(returns_to), {}};
  const auto word = [](std::uintptr_t address) { return *reinterpret_cast<const std::uintptr_t*>(address); };
  auto at = reinterpret_cast<std::uintptr_t>(frame);
  for (std::uintptr_t& caller : place.callers) {
    const Region& stack = instruments.stack;
    if (at == 0 || at % sizeof at != 0 || !stack.holds(at, sizeof at)) break;
    const std::uintptr_t next = word(at);
    if (next <= at || !stack.holds(next, 2 * sizeof at)) break;  // that of the simulator, which keeps none
    caller = word(next + sizeof at);
    at = next;
  }
  return place;
}

void require_reach(simt::Site site, const void* address, std::size_t bytes, AccessKind kind) {
  Worker* const worker = Worker::running();
  if (bytes == 0 || worker == nullptr || may_access(reinterpret_cast<std::uintptr_t>(address), bytes, kind)) return;
  worker->hold_against_reach(address, bytes, kind, {.file = site.file, .line = site.line});
}

void watch_view(simt::Site site, const void* address, std::size_t bytes, bool write, const CallPlace& from) {
  if (instruments.watch == nullptr) return;
  const CodePlace place{.file = site.file, .line = site.line, .address = from.address, .callers = from.callers};
  watch_access(address, bytes, write ? AccessKind::write : AccessKind::read, place);
}

void watch_atomic(simt::Site site, const void* address, std::size_t bytes) {
  if (instruments.watch != nullptr) watch_access(address, bytes, AccessKind::atomic, {.file = site.file, .line = site.line});
}

#ifndef FLASH_ASAN
namespace {

/// Ends the block if the access meddles with what is in flight.
void hold_against_hopper(Hopper& hopper, const void* address, std::size_t bytes, bool write, const CodePlace& place) {
  Worker* const worker = Worker::running();
  if (worker == nullptr) return;
  const int thread = worker->current().number;
  std::string why;
  const auto* const from = reinterpret_cast<const void*>(place.address);
  if (hopper.proxy.contains(address)) {
    why = hopper.proxy.access(thread, address, bytes, write, from);
  } else if (const float* const touched = hopper.warpgroups.in_flight_at(thread, address, bytes)) {
    why = hopper.warpgroups.still_in_flight(thread, touched);
  }
  if (why.empty()) return;
  instruments = {};
  worker->scheduler.abandon(RuleId::in_flight, why + " at " + words(source_line(place)));
}

[[noreturn]] void refuse_to_host(const void* address, std::size_t bytes, AccessKind kind, const CodePlace& place) {
  const std::string memory = place_near(reinterpret_cast<std::uintptr_t>(address), bytes);
  const std::string message = std::string("the host ") + (reads(kind) ? "reads " : "writes ") +
                              (memory.empty() ? "device memory" : memory) + ", which only kernels and cudaMemcpy can, at " +
                              words(source_line(place));
  if (simt::on_host_access != nullptr) simt::on_host_access(message);
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(1);
}

[[gnu::noinline]] void look(const void* address, std::size_t bytes, AccessKind kind, const void* from, const void* frame,
                            bool may) {
  if (instruments.steps_left < 0) {
    Worker* const worker = Worker::running();
    if (worker == nullptr) {
      reset_instruments();  // the host's part of a kernel file
    } else if (instruments.unwatched == 0) {
      worker->scheduler.take_stock(reinterpret_cast<std::uintptr_t>(address), bytes, kind, from);
    }
  }
  if (instruments.unwatched > 0) return;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (may && instruments.machine.holds(at)) return;  // threadIdx and its kin
  const CallPlace call = call_place(from, frame);
  CodePlace place{.address = call.address, .callers = call.callers};
  if (const Announced& copy = instruments.announced; may && copy.site.line != 0 && copy.bytes.holds(at))
    place = {.file = copy.site.file, .line = copy.site.line};
  const sanitizer::Unwatched unwatched;
  if (!may) {
    Worker* const worker = Worker::running();
    if (worker == nullptr) refuse_to_host(address, bytes, kind, place);
    worker->hold_against_reach(address, bytes, kind, place);
  }
  if (instruments.watch != nullptr) watch_access(address, bytes, kind, place);
  if (instruments.hopper != nullptr && instruments.hopper->concerns(address))
    hold_against_hopper(*instruments.hopper, address, bytes, !reads(kind), place);
}

[[gnu::always_inline]] inline void step(const void* address, std::size_t bytes, AccessKind kind, const void* from) {
  const bool may = may_access(reinterpret_cast<std::uintptr_t>(address), bytes, kind);
  if (--instruments.steps_left < 0 || instruments.looks || !may) [[unlikely]]
    look(address, bytes, kind, from, FLASH_FRAME, may);
}

/// A volatile variable is a flag: reading it is an atomic load, and storing it behind a fence an atomic store, which publishes what
/// came before the fence. A second store, at another line, needs a fence of its own, since nothing orders the two.
AccessKind flag_access(void* address, AccessKind kind, const void* from) {
  Worker* const worker = Worker::running();
  if (worker == nullptr) return kind;
  const sanitizer::Unwatched unwatched;
  Thread& self = worker->current();
  if (kind == AccessKind::read) return AccessKind::load;
  const bool in_block = !self.fenced;
  if ((in_block && !self.fenced_block) || (self.flag_store != nullptr && self.flag_store != from)) return kind;
  self.flag_store = from;
  worker->observers.publish(address, in_block);
  return in_block ? AccessKind::block_store : AccessKind::store;
}

[[gnu::always_inline]] inline void step_volatile(void* address, std::size_t bytes, AccessKind kind, const void* from) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const Instruments& i = instruments;
  if (i.watch != nullptr && i.unwatched == 0 && !i.stack.holds(at)) kind = flag_access(address, kind, from);
  step(address, bytes, kind, from);
  if (kind != AccessKind::load) return;
  const sanitizer::Unwatched unwatched;
  Worker::running()->observers.learn(address, false);  // not before: the thread may have paused, while another one published
}

}  // namespace
}  // namespace flash::machine

using flash::machine::AccessKind;
using flash::machine::instruments;
using flash::machine::step;
using flash::machine::step_volatile;

extern "C" {

#ifdef __EMSCRIPTEN__
extern const char* flash_simt_place;  // of the access, which the kernel has noted: wasm/source_line.cpp
#define FROM_HERE flash_simt_place
#else
#define FROM_HERE __builtin_return_address(0)
#endif
#define FLASH_ACCESS(bytes)                                                                                                 \
  void __tsan_read##bytes(void* address) { step(address, bytes, AccessKind::read, FROM_HERE); }                             \
  void __tsan_write##bytes(void* address) { step(address, bytes, AccessKind::write, FROM_HERE); }                           \
  void __tsan_unaligned_read##bytes(void* address) { step(address, bytes, AccessKind::read, FROM_HERE); }                   \
  void __tsan_unaligned_write##bytes(void* address) { step(address, bytes, AccessKind::write, FROM_HERE); }                 \
  void __tsan_read_write##bytes(void* address) { step(address, bytes, AccessKind::write, FROM_HERE); }                      \
  void __tsan_unaligned_read_write##bytes(void* address) { step(address, bytes, AccessKind::write, FROM_HERE); }            \
  void __tsan_volatile_read##bytes(void* address) { step_volatile(address, bytes, AccessKind::read, FROM_HERE); }           \
  void __tsan_volatile_write##bytes(void* address) { step_volatile(address, bytes, AccessKind::write, FROM_HERE); }         \
  void __tsan_unaligned_volatile_read##bytes(void* address) { step_volatile(address, bytes, AccessKind::read, FROM_HERE); } \
  void __tsan_unaligned_volatile_write##bytes(void* address) { step_volatile(address, bytes, AccessKind::write, FROM_HERE); }
FLASH_ACCESS(1)
FLASH_ACCESS(2)
FLASH_ACCESS(4)
FLASH_ACCESS(8)
FLASH_ACCESS(16)

// Of clang's -fsanitize-coverage, for whose sake it calls those above (common/cmake/options.cmake).
#define FLASH_COVERAGE(bytes)                \
  void __sanitizer_cov_load##bytes(void*) {} \
  void __sanitizer_cov_store##bytes(void*) {}
FLASH_COVERAGE(1)
FLASH_COVERAGE(2)
FLASH_COVERAGE(4)
FLASH_COVERAGE(8)
FLASH_COVERAGE(16)

void __tsan_read_range(void* address, std::size_t bytes) { step(address, bytes, AccessKind::read, FROM_HERE); }
void __tsan_write_range(void* address, std::size_t bytes) { step(address, bytes, AccessKind::write, FROM_HERE); }

void* __tsan_memcpy(void* to, const void* from, std::size_t bytes) {
  step(from, bytes, AccessKind::read, FROM_HERE);
  step(to, bytes, AccessKind::write, FROM_HERE);
  return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, std::size_t bytes) {
  step(from, bytes, AccessKind::read, FROM_HERE);
  step(to, bytes, AccessKind::write, FROM_HERE);
  return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, std::size_t bytes) {
  step(to, bytes, AccessKind::write, FROM_HERE);
  return std::memset(to, value, bytes);
}

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}

// Every atomic is done as a sequentially consistent one; the orders that are passed are the C++ ones.
#define FLASH_ATOMIC_FETCH(T, bits, name)                                    \
  T __tsan_atomic##bits##_fetch_##name(volatile T* address, T value, int) {  \
    step(const_cast<T*>(address), sizeof(T), AccessKind::atomic, FROM_HERE); \
    return __atomic_fetch_##name(address, value, __ATOMIC_SEQ_CST);          \
  }
#define FLASH_ATOMIC(T, bits)                                                                                \
  T __tsan_atomic##bits##_load(const volatile T* address, int) {                                             \
    step(const_cast<T*>(address), sizeof(T), AccessKind::load, FROM_HERE);                                   \
    return __atomic_load_n(address, __ATOMIC_SEQ_CST);                                                       \
  }                                                                                                          \
  void __tsan_atomic##bits##_store(volatile T* address, T value, int) {                                      \
    step(const_cast<T*>(address), sizeof(T), AccessKind::store, FROM_HERE);                                  \
    __atomic_store_n(address, value, __ATOMIC_SEQ_CST);                                                      \
  }                                                                                                          \
  T __tsan_atomic##bits##_exchange(volatile T* address, T value, int) {                                      \
    step(const_cast<T*>(address), sizeof(T), AccessKind::store, FROM_HERE);                                  \
    return __atomic_exchange_n(address, value, __ATOMIC_SEQ_CST);                                            \
  }                                                                                                          \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* address, T* expected, T value, int, int) {   \
    step(const_cast<T*>(address), sizeof(T), AccessKind::atomic, FROM_HERE);                                 \
    return __atomic_compare_exchange_n(address, expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                          \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* address, T* expected, T value, int, int) {     \
    step(const_cast<T*>(address), sizeof(T), AccessKind::atomic, FROM_HERE);                                 \
    return __atomic_compare_exchange_n(address, expected, value, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);  \
  }                                                                                                          \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* address, T expected, T value, int, int) {         \
    step(const_cast<T*>(address), sizeof(T), AccessKind::atomic, FROM_HERE);                                 \
    __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);       \
    return expected;                                                                                         \
  }                                                                                                          \
  FLASH_ATOMIC_FETCH(T, bits, add)                                                                           \
  FLASH_ATOMIC_FETCH(T, bits, sub)                                                                           \
  FLASH_ATOMIC_FETCH(T, bits, and)                                                                           \
  FLASH_ATOMIC_FETCH(T, bits, or)                                                                            \
  FLASH_ATOMIC_FETCH(T, bits, xor)
FLASH_ATOMIC(std::uint8_t, 8)
FLASH_ATOMIC(std::uint16_t, 16)
FLASH_ATOMIC(std::uint32_t, 32)
FLASH_ATOMIC(std::uint64_t, 64)

}  // extern "C"
#else
}  // namespace flash::machine
#endif
