// The functions that the compiler calls in kernels for -fsanitize=bounds,integer-divide-by-zero,alignment where something is wrong. Names and parameters
// are those of UndefinedBehaviorSanitizer's library (LLVM, compiler-rt/lib/ubsan/ubsan_handlers.h), which is linked under
// AddressSanitizer alone.
#include "common/machine/engine/messages.hpp"
#include "common/machine/engine/sanitizer.hpp"
#include "common/machine/engine/source_line.hpp"
#include "common/machine/engine/worker.hpp"

#ifndef FLASH_ASAN

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace flash::machine {
namespace {

struct UbsanLine {
  const char* file;
  std::uint32_t line, column;
};

struct TypeName {
  std::uint16_t kind;  ///< 0: an integer
  std::uint16_t info;  ///< of an integer: bit 0: signed; above: the logarithm of its bits
  char name[1];        ///< in quotes; as long as it takes
};

struct OutOfBounds {
  UbsanLine line;
  const TypeName& array;
  const TypeName& index;
};

struct Misaligned {  ///< or null, which needs no word: the access faults
  UbsanLine line;
  const TypeName& type;
  unsigned char log_alignment;
  unsigned char access;  ///< what for
};

struct Division {
  UbsanLine line;
  const TypeName& type;
};

/// An integer of at most 64 bits is handed over in place of its address. Callers are unwatched: the linker may take the functions
/// of std::string from a kernel's file, where they are instrumented.
std::string number(const TypeName& type, std::uintptr_t value) {
  const int bits = 1 << (type.info >> 1);
  if ((type.info & 1) == 0) return std::to_string(value);
  const int unused = 64 - bits;
  return std::to_string(static_cast<std::int64_t>(std::uint64_t{value} << unused) >> unused);
}

[[noreturn]] void stop(RuleId rule, const UbsanLine& at, const std::string& what) {
  const Site site{at.file, static_cast<int>(at.line)};
  const std::string message = what + " at " + (is_machine(at.file) ? words(source_line_of_call(nullptr)) : words(site));
  if (Worker* const worker = Worker::running()) worker->scheduler.abandon(rule, message);
  std::fprintf(stderr, "%s\n", message.c_str());  // in the host's part of a kernel file
  std::abort();
}

}  // namespace

extern "C" void __ubsan_handle_out_of_bounds(const OutOfBounds* found, std::uintptr_t index) {
  const sanitizer::Unwatched unwatched;
  stop(RuleId::out_of_bounds, found->line,
       "element " + number(found->index, index) + " of an array of type " + found->array.name + " does not exist");
}

/// With -fsanitize=alignment, which a plain file is compiled with: a float4 at an address that is no multiple of 16.
extern "C" void __ubsan_handle_type_mismatch_v1(const Misaligned* found, std::uintptr_t address) {
  const sanitizer::Unwatched unwatched;
  const std::uintptr_t alignment = std::uintptr_t{1} << found->log_alignment;
  if (address % alignment == 0) return;
  std::string memory;
  if (const std::optional<Allocation> near = origin_near(address, 0))
    memory = " (" + std::to_string(address - near->begin) + " bytes into " + name_of(*near->origin) + ")";
  stop(RuleId::misaligned, found->line,
       "misaligned access: the address of a " + std::string(found->type.name) + memory + " must be a multiple of " +
           std::to_string(alignment) + ", it is " + std::to_string(address % alignment) + " bytes beyond one");
}

extern "C" void __ubsan_handle_divrem_overflow(const Division* found, std::uintptr_t left, std::uintptr_t right) {
  const sanitizer::Unwatched unwatched;
  const std::string dividend = number(found->type, left), divisor = number(found->type, right);
  stop(RuleId::division, found->line,
       divisor == "0" ? "integer division of " + dividend + " by zero" : dividend + " / " + divisor + " overflows");
}

}  // namespace flash::machine

#endif
