#include "common/machine/engine/source_line.hpp"

#include "common/machine/engine/messages.hpp"

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

struct Frame {
  std::string function, line;  ///< the function's linker name; "file:line"
  std::string file() const { return line.substr(0, line.rfind(':')); }
};

/// Of the code that returns to these addresses and of the functions it was inlined in, from inside out.
std::vector<Frame> frames_at(const std::vector<std::uintptr_t>& calls) {
  std::string arguments;
  std::vector<Frame> frames;
  Dl_info module{};
  for (const std::uintptr_t call : calls) {  // the call lies before the address it returns to
    if (call == 0 || dladdr(reinterpret_cast<const void*>(call - 1), &module) == 0) continue;
#if defined(__APPLE__)
    arguments += " " + hexadecimal(call - 1);
#else
    auto base = reinterpret_cast<std::uintptr_t>(module.dli_fbase);
    if (static_cast<const ElfW(Ehdr)*>(module.dli_fbase)->e_type == ET_EXEC) base = 0;  // its addresses are those in the file
    arguments += " " + hexadecimal(call - 1 - base);
#endif
  }
  if (arguments.empty()) return frames;
#if defined(__APPLE__)
  std::istringstream rows(output_of_tool("-i -fullPath -p $PPID" + arguments));
  for (std::string row; std::getline(rows, row);) {  // "g(int) (in program) (f.cpp:7)"
    if (const std::size_t open = row.rfind(" ("); open != std::string::npos)
      frames.push_back({row.substr(0, row.find(" (in ")), row.substr(open + 2, row.size() - open - 3)});
  }
#else
  std::istringstream rows(output_of_tool("-f -i -e /proc/$PPID/exe" + arguments));
  for (std::string function, line; std::getline(rows, function) && std::getline(rows, line);)
    frames.push_back({function, line.substr(0, line.find(" (discriminator"))});
#endif
  std::erase_if(frames, [](const Frame& frame) { return frame.line.find('?') != std::string::npos; });
  return frames;
}

/// `part` of this project: "" for common/
bool is_ours(std::string_view file, const char* part) {
  const std::string here = __FILE__;  // .../common/machine/engine/source_line.cpp
  const std::string common = here.substr(0, here.rfind("machine/"));
  return file.starts_with(common + part) && file.find("/test", common.size()) == file.npos &&
         file.find("/examples/", common.size()) == file.npos;
}
bool is_simulator(const Frame& frame) { return is_ours(frame.line, ""); }

bool is_of_library(const Frame& frame) {
  return frame.line.starts_with("/usr/") || frame.line.starts_with("/Library/") || frame.line.starts_with("/Applications/");
}

bool is_lambda(const Frame& frame) {
  const auto has = [&](const char* part) { return frame.function.find(part) != std::string::npos; };
  return has("NKUl") || has("NUl") || has("{lambda") || has("$_");  // as g++ and clang mangle or spell it
}

/// The innermost line that is the kernel's, of calls from inside out, each by the address it returns to, and the outermost.
SourceLine line_of_calls(const std::vector<std::uintptr_t>& calls) {
  const std::vector<Frame> all = frames_at(calls);
  std::vector<Frame> frames;
  for (const Frame& frame : all) {
    if (!is_simulator(frame) && !is_of_library(frame)) frames.push_back(frame);
  }
  const bool plain = !simt::options().host_pointers;
  // The launch of a plain file's kernel is a lambda of any parameters (run/rewrite.py).
  const auto launches = [](const Frame& f) { return is_lambda(f) && f.function.find("DpT_") != std::string::npos; };
  while (plain && frames.size() > 1 && launches(frames.back())) frames.pop_back();
  if (!frames.empty()) {
    const Frame &inner = frames.front(), &outer = frames.back();
    // A lambda belongs to the function around it. Until that one is found, what called the lambda is no caller.
    const bool whole = std::ranges::any_of(frames, [&](const Frame& f) { return !is_lambda(f) && f.file() == inner.file(); });
    const bool other = plain ? outer.function != inner.function : outer.file() != inner.file();
    return {without_source_dir(inner.line), whole && other ? without_source_dir(outer.line) : std::string()};
  }
  // A kernel of common/parts: its line says more than the simulator's.
  const auto kernel =
      std::ranges::find_if(all, [](const Frame& f) { return f.line.find("/common/parts/") != std::string::npos; });
  if (!all.empty()) return {without_source_dir((kernel == all.end() ? all.front() : *kernel).line), ""};
  const bool runs = !output_of_tool("--version").empty();
  return {"address " + hexadecimal(calls.front()) + " (its line is unknown: " + tool +
              (runs ? " does not know it)" : " is not installed)"),
          ""};
}

}  // namespace

bool is_machine(const char* file) { return is_ours(file, "machine/"); }

std::string words(const SourceLine& place) {
  return place.line + (place.caller.empty() ? "" : ", called from " + place.caller);
}

SourceLine source_line(const CodePlace& place) {
  SourceLine found;
  const bool named = place.file != nullptr && (place.address == 0 || !is_machine(place.file));
  if (!named || place.callers[0] != 0)
    found = line_of_calls({place.address, place.callers[0], place.callers[1], place.callers[2]});
  if (named) found.line = words(Site{place.file, place.line});
  return found;
}

std::string caller_of(simt::Site site, const CallPlace& from) {
  std::string function, text;  // the last function on the way out
  for (const Frame& frame : frames_at({from.address, from.callers[0], from.callers[1], from.callers[2]})) {
    if (function.empty() && without_source_dir(frame.line) == words(site)) function = frame.function;
    const bool of_kernel = !is_simulator(frame) && !is_of_library(frame) && !is_lambda(frame);
    if (function.empty() || frame.function == function || !of_kernel) continue;
    text += ", called from " + without_source_dir(frame.line);
    function = frame.function;
  }
  return text;
}

SourceLine source_line_of_call(const void* from) {
  const auto visit = [](_Unwind_Context* frame, void* into) {
    constexpr std::size_t most = 12;
    auto& found = *static_cast<std::vector<std::uintptr_t>*>(into);
    found.push_back(static_cast<std::uintptr_t>(_Unwind_GetIP(frame)));
    return found.size() < most ? _URC_NO_REASON : _URC_END_OF_STACK;
  };
  std::vector<std::uintptr_t> calls;
  _Unwind_Backtrace(visit, &calls);
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  if (from != nullptr) calls.erase(calls.begin(), std::ranges::find(calls, address));
  return line_of_calls(calls.empty() ? std::vector{address} : calls);
}

}  // namespace flash::machine
