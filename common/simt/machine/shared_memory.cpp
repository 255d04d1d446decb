#include "common/simt/machine/shared_memory.hpp"

#include "common/simt/machine/sanitizer.hpp"

#include <cstring>
#include <new>

#if defined(__linux__)
#include <cxxabi.h>
#include <link.h>

#include <cstdlib>
#include <fstream>
#include <string_view>
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
  const auto& [all, section] = thread_locals();
  // A new thread's variables may lie where AddressSanitizer still knows the frames of a stack that is gone.
  sanitizer::unpoison(reinterpret_cast<void*>(all.begin), all.end - all.begin);
  if (section.begin != 0) std::memset(reinterpret_cast<void*>(section.begin), 0xFF, section.end - section.begin);
}

MemoryRange static_shared() { return thread_locals().all; }

namespace {

/// "A_tile" for "_ZZN5flash12tile_productEvE6A_tile".
std::string name_of(const char* symbol) {
  int status = 0;
  char* const text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  std::string name = text == nullptr ? symbol : text;
  std::free(text);
  return name.substr(name.rfind(':') + 1);  // 0 where there is none
}

/// Of the running program: what lies in the section, and thread-local variables of functions that are not the simulator's.
std::vector<SharedVariable> read_variables() {
  std::ifstream program("/proc/self/exe", std::ios::binary);
  const auto read = [&]<class T>(std::vector<T>& into, std::size_t offset) {
    program.seekg(static_cast<std::streamoff>(offset));
    program.read(reinterpret_cast<char*>(into.data()), static_cast<std::streamsize>(into.size() * sizeof(T)));
  };
  std::vector<ElfW(Ehdr)> header(1);
  read(header, 0);
  std::vector<ElfW(Shdr)> sections(header.front().e_shnum);
  read(sections, header.front().e_shoff);
  const auto& [all, section] = thread_locals();
  std::vector<SharedVariable> variables;
  for (const auto& table : sections) {
    if (table.sh_type != SHT_SYMTAB || table.sh_link >= sections.size()) continue;
    std::vector<ElfW(Sym)> symbols(table.sh_size / sizeof(ElfW(Sym)));
    read(symbols, table.sh_offset);
    std::vector<char> names(sections[table.sh_link].sh_size);
    read(names, sections[table.sh_link].sh_offset);
    for (const auto& symbol : symbols) {
      if (!program || symbol.st_name >= names.size() || (symbol.st_info & 0xF) != STT_TLS) continue;
      const char* const name = names.data() + symbol.st_name;
      const std::uintptr_t at = all.begin + symbol.st_value;
      const bool local = std::string_view(name).starts_with("_ZZ") && !std::string_view(name).starts_with("_ZZN5flash7machine");
      if (local || (at >= section.begin && at < section.end))
        variables.push_back({name_of(name), symbol.st_value, symbol.st_size});
    }
  }
  return variables;
}

const std::vector<SharedVariable>& variables() {
  static const std::vector<SharedVariable> all = read_variables();
  return all;
}

const std::byte* start_of(const SharedVariable& variable) {
  return reinterpret_cast<const std::byte*>(thread_locals().all.begin) + variable.offset;
}

}  // namespace

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

#else

void poison_static_shared() {}
MemoryRange static_shared() { return {}; }
void StaticSharedUse::start_block() {}
std::vector<SharedVariable> StaticSharedUse::written() const { return {}; }

#endif

}  // namespace flash::machine
