// Places in the source. In WebAssembly a return address tells nothing, so common/wasm/places.py has kernels note "file:line" before each access to
// memory; the address of that text stands for the place.
#include "common/machine/engine/source_line.hpp"

#include "common/machine/engine/messages.hpp"

namespace flash::machine {

extern "C" const char* flash_simt_place = nullptr;

SourceLine source_line(const CodePlace& place) {
  if (place.file != nullptr) return {words(Site{place.file, place.line}), ""};
  const auto* const text = reinterpret_cast<const char*>(place.address);
  return {text != nullptr ? without_source_dir(text) : "a line that is not known", ""};
}

bool is_machine(const char*) { return false; }
std::string caller_of(simt::Site, const CallPlace&) { return ""; }

std::string words(const SourceLine& place) { return place.line; }

SourceLine source_line_of_call(const void* from) { return source_line({.address = reinterpret_cast<std::uintptr_t>(from)}); }

}  // namespace flash::machine
