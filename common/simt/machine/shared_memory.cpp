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

// __shared__ puts its variables into the section flash_shared of thread-local storage. The linker names the section's ends in the
// image that new threads copy; this thread's copy lies as far from the start of its block as the section does from the image's.
extern "C" const char __start_flash_shared[] __attribute__((weak));
extern "C" const char __stop_flash_shared[] __attribute__((weak));

void poison_static_shared() {
  static thread_local char* const start = [] {
    char* found = nullptr;
    const auto look = [](dl_phdr_info* module, std::size_t, void* result) {
      for (int i = 0; i < module->dlpi_phnum; ++i) {
        const auto& segment = module->dlpi_phdr[i];
        const auto image = module->dlpi_addr + segment.p_vaddr;
        const auto section = reinterpret_cast<std::uintptr_t>(__start_flash_shared);
        if (segment.p_type != PT_TLS || section < image || section >= image + segment.p_memsz) continue;
        *static_cast<char**>(result) = static_cast<char*>(module->dlpi_tls_data) + (section - image);
        return 1;
      }
      return 0;
    };
    if (__start_flash_shared != nullptr) dl_iterate_phdr(look, &found);
    return found;
  }();
  if (start != nullptr) std::memset(start, 0xFF, static_cast<std::size_t>(__stop_flash_shared - __start_flash_shared));
}

#else

void poison_static_shared() {}

#endif

}  // namespace flash::machine
