#include "common/machine/engine/shared_memory.hpp"

#include "common/machine/engine/module.hpp"
#include "common/machine/engine/sanitizer.hpp"

#include <cstring>
#include <new>

namespace flash::machine {
namespace {

constexpr std::size_t margin = 4096;
constexpr std::size_t capacity = SharedMemory::reach - margin;  // an SM's 228 KiB: no target gives a block more
constexpr std::align_val_t alignment{1024};

}  // namespace

SharedMemory::SharedMemory() : memory_(static_cast<std::byte*>(::operator new(margin + capacity + margin, alignment))) {
  data_ = memory_ + margin;
  std::memset(memory_, 0xFF, margin + capacity + margin);
}

SharedMemory::~SharedMemory() {
  sanitizer::unpoison(memory_, margin + capacity + margin);
  ::operator delete(memory_, alignment);
}

void SharedMemory::start_block(std::size_t bytes) {
  sanitizer::unpoison(memory_, margin + capacity + margin);
  bytes_ = bytes;
  std::memset(memory_, 0xFF, margin + bytes + margin);
  sanitizer::poison(memory_, margin);
  sanitizer::poison(data_ + bytes, capacity - bytes + margin);
}

bool SharedMemory::beyond(const void* address, std::size_t bytes) const {
  const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(data_);
  return offset < reach && offset + bytes > bytes_;
}

std::string SharedMemory::words(const void* address, std::size_t bytes) const {
  const std::ptrdiff_t offset = static_cast<const std::byte*>(address) - data_;
  return "bytes " + std::to_string(offset) + ".." + std::to_string(offset + static_cast<std::ptrdiff_t>(bytes) - 1) +
         " of dynamic shared memory, which has " + std::to_string(bytes_) + " bytes";
}

bool SharedMemory::in_margin(const void* address) const {
  const auto offset = reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(memory_);
  return offset < margin + capacity + margin && offset - margin >= bytes_;
}

void poison_static_shared() {
  const auto& [all, shared, own] = thread_locals();
  // A new thread's variables may lie where AddressSanitizer still knows the frames of a stack that is gone.
  sanitizer::unpoison(reinterpret_cast<void*>(all.begin), all.end - all.begin);
  if (shared.begin != 0) std::memset(reinterpret_cast<void*>(shared.begin), 0xFF, shared.end - shared.begin);
}

namespace {

/// What lies in the section, and thread-local variables of functions that are not the simulator's.
std::vector<SharedVariable> read_variables() {
  std::vector<SharedVariable> variables;
  const ThreadLocals& locals = thread_locals();
  for_each_symbol([&](const Symbol& symbol) {
    if (!symbol.thread_local_) return;
    const std::uintptr_t at = locals.all.begin + symbol.value;
    const bool local = symbol.name.starts_with("_ZZ") && !symbol.name.starts_with("_ZZN5flash7machine");
    if (local || (at >= locals.shared.begin && at < locals.shared.end))
      variables.push_back({variable_name(symbol.name), symbol.value, symbol.bytes});
  });
  return variables;
}

const std::vector<SharedVariable>& variables() {
  static const std::vector<SharedVariable> all = read_variables();
  return all;
}

std::vector<SharedVariable> read_guards() {
  std::vector<SharedVariable> guards;
  for_each_symbol([&](const Symbol& symbol) {
    if (symbol.thread_local_ && symbol.name.starts_with("_ZGV"))
      guards.push_back({std::string(symbol.name), symbol.value, symbol.bytes});
  });
  return guards;
}

const std::byte* start_of(const SharedVariable& variable) {
  return reinterpret_cast<const std::byte*>(thread_locals().all.begin) + variable.offset;
}

}  // namespace

const std::vector<SharedVariable>& guard_variables() {
  static const std::vector<SharedVariable> all = read_guards();
  return all;
}

void StaticSharedUse::start_block() {
  before_.clear();
  for (const SharedVariable& variable : variables())
    before_.insert(before_.end(), start_of(variable), start_of(variable) + variable.bytes);
}

std::vector<SharedVariable> StaticSharedUse::written() const {
  std::vector<SharedVariable> found;
  const std::byte* before = before_.data();
  for (const SharedVariable& variable : variables()) {
    if (std::memcmp(start_of(variable), before, variable.bytes) != 0) found.push_back(variable);
    before += variable.bytes;
  }
  return found;
}

}  // namespace flash::machine
