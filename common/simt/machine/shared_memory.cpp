#include "common/simt/machine/shared_memory.hpp"

#include "common/simt/machine/sanitizer.hpp"

#include <cstring>
#include <new>

#if defined(__linux__)
#include <link.h>
#endif

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

std::ptrdiff_t SharedMemory::overwritten() const {
#ifdef FLASH_ASAN
  return 0;  // was reported when it happened
#else
  constexpr std::byte poison_byte{0xFF};
  for (std::size_t i = 0; i < margin; ++i) {
    if (data_[bytes_ + i] != poison_byte) return static_cast<std::ptrdiff_t>(bytes_ + i);
  }
  for (std::ptrdiff_t i = -1; i >= -static_cast<std::ptrdiff_t>(margin); --i) {
    if (data_[i] != poison_byte) return i;
  }
  return 0;
#endif
}

#if defined(__linux__)

// __shared__ puts its variables into the section flash_shared of thread-local storage, whose ends the linker names.
extern "C" const char __start_flash_shared[] __attribute__((weak));
extern "C" const char __stop_flash_shared[] __attribute__((weak));

namespace {

/// Addresses of the calling thread's copy of the program's thread-local variables, and of the section within. The linker's names lie in
/// the image that new threads copy; this thread's copy of the section lies as far from the start of its block as the section does from the image's.
struct ThreadLocals {
  MemoryRange all, section;
};

const ThreadLocals& thread_locals() {
  static thread_local const ThreadLocals found = [] {
    ThreadLocals result;
    const auto look = [](dl_phdr_info* module, std::size_t, void* into) {
      for (int i = 0; i < module->dlpi_phnum; ++i) {
        const auto& segment = module->dlpi_phdr[i];
        if (segment.p_type != PT_TLS || module->dlpi_tls_data == nullptr) continue;
        auto& locals = *static_cast<ThreadLocals*>(into);
        const auto image = module->dlpi_addr + segment.p_vaddr;
        const auto begin = reinterpret_cast<std::uintptr_t>(module->dlpi_tls_data);
        locals.all = {begin, begin + segment.p_memsz};
        const auto section = reinterpret_cast<std::uintptr_t>(__start_flash_shared);
        const auto section_end = reinterpret_cast<std::uintptr_t>(__stop_flash_shared);
        if (__start_flash_shared != nullptr) locals.section = {begin + (section - image), begin + (section_end - image)};
      }
      return 1;  // the program itself comes first
    };
    dl_iterate_phdr(look, &result);
    return result;
  }();
  return found;
}

}  // namespace

void poison_static_shared() {
  const MemoryRange& section = thread_locals().section;
  if (section.begin != 0) std::memset(reinterpret_cast<void*>(section.begin), 0xFF, section.end - section.begin);
}

MemoryRange static_shared() { return thread_locals().all; }

#else

void poison_static_shared() {}
MemoryRange static_shared() { return {}; }

#endif

}  // namespace flash::machine
