#include "common/machine/engine/module.hpp"

#include "common/machine/cpu/thread.hpp"

#if defined(__linux__)
#include <cxxabi.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#endif

namespace flash::machine {

#if defined(__linux__)

// The ends of sections, which the linker names. These names lie in the image that new threads copy; a thread's copy of a section lies as far
// from the start of its variables as the section does from the image's.
extern "C" const char __start_flash_shared[] __attribute__((weak));
extern "C" const char __stop_flash_shared[] __attribute__((weak));
extern "C" const char __start_flash_machine[] __attribute__((weak));
extern "C" const char __stop_flash_machine[] __attribute__((weak));

namespace {

bool holds(const dl_phdr_info& module, const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address) - module.dlpi_addr;
  for (int i = 0; i < module.dlpi_phnum; ++i) {
    const auto& segment = module.dlpi_phdr[i];
    if (segment.p_type == PT_LOAD && at - segment.p_vaddr < segment.p_memsz) return true;
  }
  return false;
}

struct Module {
  std::string file;
  std::uintptr_t base = 0;
  std::vector<MemoryRange> constants;
};

const Module& module_of_simulator() {
  static const Module found = [] {
    Module result;
    const auto look = [](dl_phdr_info* module, std::size_t, void* into) {
      auto& self = *static_cast<Module*>(into);
      if (holds(*module, reinterpret_cast<const void*>(&thread_locals))) {
        const bool program = module->dlpi_name == nullptr || *module->dlpi_name == '\0';
        self.file = program ? "/proc/self/exe" : module->dlpi_name;
        self.base = module->dlpi_addr;
      }
      for (int i = 0; i < module->dlpi_phnum; ++i) {
        const auto& segment = module->dlpi_phdr[i];
        const bool read_only = segment.p_type == PT_LOAD && (segment.p_flags & PF_W) == 0;
        if (!read_only && segment.p_type != PT_GNU_RELRO) continue;
        const auto begin = module->dlpi_addr + segment.p_vaddr;
        self.constants.push_back({begin, begin + segment.p_memsz});
      }
      return 0;
    };
    dl_iterate_phdr(look, &result);
    return result;
  }();
  return found;
}

}  // namespace

const ThreadLocals& thread_locals() {
  FLASH_MACHINE_VARIABLE static thread_local const ThreadLocals found = [] {
    ThreadLocals result;
    const auto look = [](dl_phdr_info* module, std::size_t, void* into) {
      const auto own = reinterpret_cast<std::uintptr_t>(&simt::threadIdx);
      for (int i = 0; i < module->dlpi_phnum; ++i) {
        const auto& segment = module->dlpi_phdr[i];
        const auto begin = reinterpret_cast<std::uintptr_t>(module->dlpi_tls_data);
        if (segment.p_type != PT_TLS || begin == 0 || own - begin >= segment.p_memsz) continue;
        const auto image = module->dlpi_addr + segment.p_vaddr;
        const auto section = [&](const char* first, const char* last) -> MemoryRange {
          if (first == nullptr) return {};
          return {begin + (reinterpret_cast<std::uintptr_t>(first) - image),
                  begin + (reinterpret_cast<std::uintptr_t>(last) - image)};
        };
        *static_cast<ThreadLocals*>(into) = {{begin, begin + segment.p_memsz},
                                             section(__start_flash_shared, __stop_flash_shared),
                                             section(__start_flash_machine, __stop_flash_machine)};
        return 1;
      }
      return 0;
    };
    dl_iterate_phdr(look, &result);
    return result;
  }();
  return found;
}

const std::vector<MemoryRange>& constant_memory() { return module_of_simulator().constants; }

void for_each_symbol(const std::function<void(const Symbol&)>& visit) {
  std::ifstream file(module_of_simulator().file, std::ios::binary);
  const auto read = [&]<class T>(std::vector<T>& into, std::size_t offset) {
    file.seekg(static_cast<std::streamoff>(offset));
    file.read(reinterpret_cast<char*>(into.data()), static_cast<std::streamsize>(into.size() * sizeof(T)));
  };
  std::vector<ElfW(Ehdr)> header(1);
  read(header, 0);
  std::vector<ElfW(Shdr)> sections(header.front().e_shnum);
  read(sections, header.front().e_shoff);
  for (const auto& table : sections) {
    if (table.sh_type != SHT_SYMTAB || table.sh_link >= sections.size()) continue;
    std::vector<ElfW(Sym)> symbols(table.sh_size / sizeof(ElfW(Sym)));
    read(symbols, table.sh_offset);
    std::vector<char> names(sections[table.sh_link].sh_size);
    read(names, sections[table.sh_link].sh_offset);
    for (const auto& symbol : symbols) {
      if (!file || symbol.st_name >= names.size()) continue;
      const int type = symbol.st_info & 0xF;
      visit({names.data() + symbol.st_name, type == STT_TLS, type == STT_OBJECT, symbol.st_value, symbol.st_size});
    }
  }
}

std::string variable_name(std::string_view symbol) {
  int status = 0;
  char* const text = abi::__cxa_demangle(std::string(symbol).c_str(), nullptr, nullptr, &status);
  std::string name = text == nullptr ? std::string(symbol) : text;
  std::free(text);
  return name.substr(name.rfind(':') + 1);  // 0 where there is none
}

std::string variable_at(std::uintptr_t address) {
  std::string name;
  for_each_symbol([&](const Symbol& symbol) {
    if (symbol.object && address - module_of_simulator().base - symbol.value < symbol.bytes) name = variable_name(symbol.name);
  });
  return name;
}

bool is_mapped(std::uintptr_t address) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  unsigned char resident;
  return mincore(reinterpret_cast<void*>(address / page * page), 1, &resident) == 0;
}

#else

#if defined(__EMSCRIPTEN__)  // The linker names the section's ends. Other variables lie among the host's.
extern "C" const char __start_flash_shared[] __attribute__((weak));
extern "C" const char __stop_flash_shared[] __attribute__((weak));

const ThreadLocals& thread_locals() {
  static const MemoryRange shared{reinterpret_cast<std::uintptr_t>(__start_flash_shared),
                                  reinterpret_cast<std::uintptr_t>(__stop_flash_shared)};
  static const ThreadLocals found{{}, shared, {}};
  return found;
}
#else
const ThreadLocals& thread_locals() {
  static const ThreadLocals unknown;
  return unknown;
}
#endif
const std::vector<MemoryRange>& constant_memory() {
  static const std::vector<MemoryRange> unknown;
  return unknown;
}
void for_each_symbol(const std::function<void(const Symbol&)>&) {}
std::string variable_name(std::string_view symbol) { return std::string(symbol); }
std::string variable_at(std::uintptr_t) { return ""; }
bool is_mapped(std::uintptr_t) { return true; }

#endif

}  // namespace flash::machine
