#include "common/machine/engine/shared_memory.hpp"

#include "common/machine/engine/module.hpp"
#include "common/machine/engine/sanitizer.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace flash::machine {
namespace {

constexpr std::ptrdiff_t margin = 4096;
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

/// Each in ascending order.
struct StaticShared {
  std::vector<SharedVariable>
      variables;  ///< what lies in the section, and thread-local variables of functions that are not the simulator's
  std::vector<SharedVariable> margins, unwatched;
};

const StaticShared& static_shared() {
  static const StaticShared found = [] {
    StaticShared all;
    const ThreadLocals& locals = thread_locals();
    for_each_symbol([&](const Symbol& symbol) {
      if (!symbol.thread_local_) return;
      const std::uintptr_t at = locals.all.begin + symbol.value;
      const bool local = symbol.name.starts_with("_ZZ") && !symbol.name.starts_with("_ZZN5flash7machine");
      const SharedVariable variable{variable_name(symbol.name), symbol.value, symbol.bytes};
      if (variable.name.starts_with("flash_margin")) all.margins.push_back(variable);
      if (symbol.name.starts_with("_ZGV") || variable.name.starts_with("flash_margin")) {
        all.unwatched.push_back(variable);
      } else if (local || (at >= locals.shared.begin && at < locals.shared.end)) {
        all.variables.push_back(variable);
      }
    });
    for (auto* const each : {&all.variables, &all.margins}) std::ranges::sort(*each, {}, &SharedVariable::offset);
    return all;
  }();
  return found;
}

const std::byte* start_of(const SharedVariable& variable) {
  return reinterpret_cast<const std::byte*>(thread_locals().all.begin) + variable.offset;
}

}  // namespace

const std::vector<SharedVariable>& unwatched_variables() { return static_shared().unwatched; }

bool in_static_margin(std::uintptr_t address) {
  const std::size_t offset = address - thread_locals().all.begin;
  const auto& margins = static_shared().margins;
  const auto after = std::ranges::upper_bound(margins, offset, {}, &SharedVariable::offset);
  return after != margins.begin() && offset - std::prev(after)->offset < std::prev(after)->bytes;
}

std::string static_shared_words(std::uintptr_t address, std::size_t bytes) {
  const auto offset = static_cast<std::ptrdiff_t>(address - thread_locals().all.begin);
  const SharedVariable* found = nullptr;  // the last that begins there or before, unless only the next is close
  for (const SharedVariable& variable : static_shared().variables) {
    const auto begin = static_cast<std::ptrdiff_t>(variable.offset), end = begin + static_cast<std::ptrdiff_t>(variable.bytes);
    if (begin <= offset ? offset - end < margin : found == nullptr && begin - offset < margin) found = &variable;
  }
  if (found == nullptr) return "";
  const auto element = [&](std::ptrdiff_t at) { return std::to_string(at / static_cast<std::ptrdiff_t>(bytes)); };
  const std::ptrdiff_t at = offset - static_cast<std::ptrdiff_t>(found->offset),
                       size = static_cast<std::ptrdiff_t>(found->bytes);
  const std::string text = "element " + element(at) + " of shared variable " + found->name;
  return at >= 0 && at < size ? text : text + ", whose last is " + element(size - 1) + ",";
}

void StaticSharedUse::start_block() {
  before_.clear();
  for (const SharedVariable& variable : static_shared().variables)
    before_.insert(before_.end(), start_of(variable), start_of(variable) + variable.bytes);
}

std::vector<SharedVariable> StaticSharedUse::written() const {
  std::vector<SharedVariable> found;
  const std::byte* before = before_.data();
  for (const SharedVariable& variable : static_shared().variables) {
    if (std::memcmp(start_of(variable), before, variable.bytes) != 0) found.push_back(variable);
    before += variable.bytes;
  }
  return found;
}

}  // namespace flash::machine
