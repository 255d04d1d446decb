#include "common/simt/machine/source_line.hpp"

#include "common/simt/machine/names.hpp"

#include <dlfcn.h>
#include <stdio.h>
#if !defined(__APPLE__)
#include <link.h>
#endif

#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

namespace flash::machine {
namespace {

/// What a command prints; nothing if it cannot be run.
std::string output_of(const std::string& command) {
  std::string text;
  if (FILE* const pipe = popen((command + " 2>/dev/null").c_str(), "r")) {
    char buffer[4096];
    while (const std::size_t got = fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, got);
    pclose(pipe);
  }
  return text;
}

/// "file:line" of the code at an address and of the functions it was inlined in, from inside out.
std::vector<std::string> lines_at(std::uintptr_t address) {
  Dl_info module{};
  if (dladdr(reinterpret_cast<const void*>(address), &module) == 0) return {};
#if defined(__APPLE__)
  const std::string printed = output_of("atos -i -fullPath -p $PPID " + hexadecimal(address));
#else
  auto base = reinterpret_cast<std::uintptr_t>(module.dli_fbase);
  if (static_cast<const ElfW(Ehdr)*>(module.dli_fbase)->e_type == ET_EXEC) base = 0;  // its addresses are those in the file
  const std::string printed = output_of("addr2line -i -e /proc/$PPID/exe " + hexadecimal(address - base));
#endif
  std::vector<std::string> lines;
  std::istringstream rows(printed);
  for (std::string row; std::getline(rows, row);) {
    if (const std::size_t open = row.rfind(" (");
        open != std::string::npos) {  // addr2line: "f.cpp:7 (discriminator 2)"; atos: "g (in p) (f.cpp:7)"
      row = row.find("discriminator", open) != std::string::npos ? row.substr(0, open)
                                                                 : row.substr(open + 2, row.size() - open - 3);
    }
    if (row.find('?') == std::string::npos) lines.push_back(row);
  }
  return lines;
}

bool is_simulator(const std::string& line) {
  const std::string here = __FILE__;  // .../common/simt/machine/source_line.cpp
  const std::string folder = here.substr(0, here.rfind("machine/"));
  return line.starts_with(folder) && line.find("/test/") == std::string::npos;
}

}  // namespace

std::string source_line(const CodePlace& place) {
  if (place.file != nullptr) return words(Site{place.file, place.line});
  const std::vector<std::string> lines = lines_at(place.address - 1);  // the call lies before the address it returns to
  const auto found = std::ranges::find_if_not(lines, is_simulator);
  if (found == lines.end())
    return "address " + hexadecimal(place.address) + " (its line is unknown: addr2line is not installed)";
  return without_source_dir(*found);
}

}  // namespace flash::machine
