#include "common/simt/machine/source_line.hpp"

#include "common/simt/machine/messages.hpp"

#include <dlfcn.h>
#include <stdio.h>
#include <unwind.h>
#if !defined(__APPLE__)
#include <link.h>
#endif

#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

namespace flash::machine {
namespace {

#if defined(__APPLE__)
constexpr const char* tool = "atos";
#else
constexpr const char* tool = "addr2line";
#endif

/// What the tool prints with these arguments; nothing if it cannot be run.
std::string output_of_tool(const std::string& arguments) {
  std::string text;
  if (FILE* const pipe = popen((tool + (" " + arguments) + " 2>/dev/null").c_str(), "r")) {
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
  const std::string printed = output_of_tool("-i -fullPath -p $PPID " + hexadecimal(address));
#else
  auto base = reinterpret_cast<std::uintptr_t>(module.dli_fbase);
  if (static_cast<const ElfW(Ehdr)*>(module.dli_fbase)->e_type == ET_EXEC) base = 0;  // its addresses are those in the file
  const std::string printed = output_of_tool("-i -e /proc/$PPID/exe " + hexadecimal(address - base));
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

/// The innermost line that is not the simulator's, of calls from inside out, each by the address it returns to.
std::string line_of_calls(const std::vector<std::uintptr_t>& calls) {
  std::string simulator;
  for (const std::uintptr_t call : calls) {
    for (const std::string& line : lines_at(call - 1)) {  // the call lies before the address it returns to
      if (!is_simulator(line)) return without_source_dir(line);
      if (simulator.empty()) simulator = line;
    }
  }
  if (!simulator.empty()) return without_source_dir(simulator);
  const bool runs = !output_of_tool("--version").empty();
  return "address " + hexadecimal(calls.front()) + " (its line is unknown: " + tool +
         (runs ? " does not know it)" : " is not installed)");
}

}  // namespace

std::string source_line(const CodePlace& place) {
  return place.file != nullptr ? words(Site{place.file, place.line}) : line_of_calls({place.address});
}

std::string source_line_of_call(const void* from) {
  const auto visit = [](_Unwind_Context* frame, void* into) {
    constexpr std::size_t most = 12;
    auto& found = *static_cast<std::vector<std::uintptr_t>*>(into);
    found.push_back(static_cast<std::uintptr_t>(_Unwind_GetIP(frame)));
    return found.size() < most ? _URC_NO_REASON : _URC_END_OF_STACK;
  };
  std::vector<std::uintptr_t> calls;
  _Unwind_Backtrace(visit, &calls);
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  calls.erase(calls.begin(), std::ranges::find(calls, address));
  return line_of_calls(calls.empty() ? std::vector{address} : calls);
}

}  // namespace flash::machine
