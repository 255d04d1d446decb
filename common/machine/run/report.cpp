// What a plain file's program did wrong, said when it ends.
//
//   FLASH_RUN_JSON=FILE   one object instead of the report        FLASH_RUN_COUNTS=1   bytes, sectors, bank conflicts
//   FLASH_RUN_STRICT=1    what hardware since Volta tolerates, and what hardly ever does harm, is a finding, too
#include "common/machine/engine/scheduler.hpp"
#include "common/machine/engine/source_line.hpp"
#include "common/machine/run/program.hpp"

#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <regex>

namespace flash::plain {

State& state() {
  static State& it = *new State;
  return it;
}

std::vector<std::string> lines_in(const std::string& text) {
  static const std::regex waits(" waits? in (?!a loop)"), place("(?: at |, called from )([^,\n]*?:[0-9]+)(?![0-9])");
  const std::sregex_iterator first(text.begin(), text.end(), waits), end;
  const auto last = static_cast<std::ptrdiff_t>(std::min(text.rfind(" at "), text.size()));
  const auto begin = text.begin() + (first == end ? last : first->position());
  std::vector<std::string> lines;
  for (std::sregex_iterator it(begin, text.end(), place); it != end; ++it) lines.push_back((*it)[1]);
  return lines;
}

void add(std::vector<Finding>& all, Finding finding) {
  for (const Finding& known : all) {
    if (known.rule == finding.rule && known.lines == finding.lines) return;
  }
  all.push_back(std::move(finding));
}

Kernel& kernel_named(const std::string& name) {
  for (Kernel& kernel : state().kernels) {
    if (kernel.name == name) return kernel;
  }
  Kernel& fresh = state().kernels.emplace_back();
  fresh.name = name;
  return fresh;
}

namespace {

void collect() {
  const Findings found = findings();
  const auto found_in = [](Kernel& kernel, std::uint64_t launch) {
    kernel.first_found = kernel.first_found == 0 ? launch + 1 : std::min(kernel.first_found, launch + 1);
  };
  for (const Race& race : found.races) {
    Kernel& kernel = kernel_named(race.kernel);
    found_in(kernel, race.launch);
    add(kernel.findings, {name_of(race.rule()), sentence(race), {race.first_line, race.second_line}, race.one_block});
  }
  for (const Race& race : found.remarks)
    add(kernel_named(race.kernel).remarks, {name_of(race.rule()), sentence(race), {race.first_line, race.second_line}});
  for (const auto& [kernel, lines, text] : found.barriers)
    add(kernel_named(kernel).remarks, {name_of(RuleId::divergent_barrier), text, lines});
  for (const UnwrittenRead& read : found.unwritten) {  // the cause of what follows, unless a race is its own
    found_in(kernel_named(read.kernel), read.launch);
    std::vector<Finding>& all = kernel_named(read.kernel).findings;
    const auto races = [&](const Finding& f) { return std::ranges::find(f.lines, read.line) != f.lines.end(); };
    all.insert(std::ranges::any_of(all, races) ? all.end() : all.begin(),
               {name_of(RuleId::unwritten_read), sentence(read), {read.line}});
  }
  for (const ArrayConflicts& conflicts : found.conflicts) kernel_named(conflicts.kernel).conflicts.push_back(conflicts);
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (c == '\n') {
      result += "\\n";
    } else if (static_cast<unsigned char>(c) >= 32) {
      result += c;
    }
  }
  return result + '"';
}
template <class All, class Show>
std::string listed(const All& all, Show show) {
  std::string text;
  for (const auto& each : all) text += (text.empty() ? "" : ", ") + show(each);
  return "[" + text + "]";
}
// JSON by hand: the library asks for no package that has it.
std::string json(const Finding& f) {
  return "{\"rule\": " + quoted(f.rule) + ", \"text\": " + quoted(f.text) + ", \"lines\": " + listed(f.lines, quoted) + "}";
}
std::string words(const dim3& size) { return number(size.x) + "x" + number(size.y) + "x" + number(size.z); }

std::string json(const Kernel& k) {
  const auto one = [](const Finding& f) { return json(f); };
  return "{\"kernel\": " + quoted(k.name) + ", \"launches\": " + number(k.launches) + ", \"watched\": " + number(k.watched) +
         ", \"complete\": " + (k.complete ? "true" : "false") + ", \"findings\": " + listed(k.findings, one) +
         ", \"remarks\": " + listed(k.remarks, one) + "}";
}

/// The head line of a kernel has said its name.
std::string without_name(std::string text, const Kernel& k) {
  if (const std::string name = " (kernel " + k.name + ")"; text.ends_with(name)) text.resize(text.size() - name.size());
  if (const std::string name = "kernel " + k.name + ", "; text.starts_with(name)) text.erase(0, name.size());
  return text;
}

/// Races that one barrier would order: between all their upper lines and all their lower ones.
struct Folded {
  const Finding* first;
  std::string file;
  std::array<int, 2> upper, lower;  ///< from line, to line
  int pairs = 1;
};
std::vector<Folded> folded(const std::vector<Finding>& findings) {
  std::vector<Folded> all;
  for (const Finding& f : findings) {
    Folded it{&f, "", {0, 0}, {0, 0}};
    if (f.of_barrier && f.lines[0] != f.lines[1]) {
      const auto line = [](const std::string& place) { return std::atoi(place.c_str() + place.rfind(':') + 1); };
      const auto [upper, lower] = std::minmax({line(f.lines[0]), line(f.lines[1])});
      const std::string file = f.lines[0].substr(0, f.lines[0].rfind(':'));
      if (f.lines[1].starts_with(file + ":")) it = {&f, file, {upper, upper}, {lower, lower}};
    }
    const auto same = std::ranges::find_if(all, [&](const Folded& other) {
      return !it.file.empty() && it.file == other.file &&
             std::max(other.upper[1], it.upper[1]) < std::min(other.lower[0], it.lower[0]);
    });
    if (same == all.end()) {
      all.push_back(it);
      continue;
    }
    ++same->pairs;
    same->upper = {std::min(same->upper[0], it.upper[0]), std::max(same->upper[1], it.upper[1])};
    same->lower = {std::min(same->lower[0], it.lower[0]), std::max(same->lower[1], it.lower[1])};
  }
  return all;
}

/// The lines of a file as they were when it was compiled, the first one at 1.
std::vector<std::string> lines_of(const std::string& path) {
  const char* const read = std::getenv("FLASH_RUN_READ");
  std::ifstream file(read == nullptr ? path : read + std::filesystem::weakly_canonical(path).string());
  if (!file) file = std::ifstream(path);
  if (!file) file = std::ifstream(FLASH_SOURCE_DIR "/" + path);
  std::vector<std::string> lines(1);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

/// Those that a finding names.
void print_lines(const std::vector<std::string>& places) {
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::size_t colon = places[i].rfind(':');
    if (colon == std::string::npos || (i > 0 && places[i] == places[i - 1])) continue;
    const std::vector<std::string> lines = lines_of(places[i].substr(0, colon));
    const auto number = static_cast<std::size_t>(std::atoi(places[i].c_str() + colon + 1));
    if (number > 0 && number < lines.size()) std::fprintf(stderr, "%5zu | %s\n", number, lines[number].c_str());
  }
}

/// Where a barrier is missing: between the lines, or behind them, before their loop begins anew. Where one stands already, it is not said.
std::string place_of_barrier(const Folded& f) {
  const std::vector<std::string> lines = lines_of(f.file);
  const auto line = [&](int n) { return static_cast<std::size_t>(n) < lines.size() ? lines[static_cast<std::size_t>(n)] : ""; };
  const auto depth = [&](int n) { return line(n).find_first_not_of(" \t"); };
  const auto syncs = [&](int n) { return line(n).find("__syncthreads()") != std::string::npos; };
  bool between = false, behind = false;
  for (int n = f.upper[1] + 1; n < f.lower[0]; ++n) between |= syncs(n);
  const std::size_t loop = std::min(depth(f.upper[0]), depth(f.lower[1]));
  for (int n = f.lower[1] + 1; n < static_cast<int>(lines.size()) && depth(n) >= loop; ++n) behind |= syncs(n);
  const auto range = [](const std::array<int, 2>& of) {
    return number(static_cast<unsigned>(of[0])) + (of[0] == of[1] ? "" : "-" + number(static_cast<unsigned>(of[1])));
  };
  const std::string lower = range(f.lower), first = "between lines " + range(f.upper) + " and " + lower;
  if (between == behind) return first + ", or where their loop begins anew,";
  return between ? "behind lines " + lower + ", before their loop begins anew," : first;
}

/// What to look at where a kernel goes on and on: the loops around that line, from inside out, by their indentation.
void print_loops(const std::string& place) {
  static const std::regex loop(R"(\b(for|while)\s*\(|\bdo\b)");
  const std::size_t colon = place.rfind(':'), at = static_cast<std::size_t>(std::atoi(place.c_str() + colon + 1));
  const std::vector<std::string> lines = lines_of(place.substr(0, colon));
  std::string found;
  for (std::size_t n = std::min(at, lines.size() - 1), depth = std::string::npos; n > 0 && depth > 0; --n) {
    const std::size_t begin = lines[n].find_first_not_of(" \t}");
    if (begin >= depth || lines[n].find("//") == begin) continue;
    depth = begin;
    if (!std::regex_search(lines[n], loop)) continue;
    found += (found.empty() ? " that begins in line " : " or ") + number(n);
    if (n != at) print_lines({place.substr(0, colon + 1) + number(n)});
  }
  std::fprintf(stderr, "    The loop%s does not end: does each iteration change what its condition tests?%s\n", found.c_str(),
               asked("FLASH_RUN_BRIEF") ? "" : " If it is only long, FLASH_SIMT_STEPS=N raises the limit");
}

void print_report(const Kernel& k, bool counts) {
  const std::vector<Folded> findings = folded(k.findings);
  if (asked("FLASH_RUN_BRIEF") && !counts && findings.empty() && k.remarks.empty()) return;
  std::string head = "kernel " + k.name + ": " + number(k.launches) +
                     (k.launches == 1 ? " launch of " : " launches, the last of ") + words(k.grid) + " blocks of " +
                     words(k.block) + " threads";
  if (!k.after.empty()) head += " (after kernel " + k.after + " had died, when a GPU would run no more)";
  if (k.watched < k.launches) head += ", " + number(k.watched) + " of them watched";
  std::fprintf(
      stderr, "%s: %s\n", head.c_str(),
      findings.empty()
          ? "nothing found"
          : (number(findings.size()) + (findings.size() == 1 ? " finding" : " findings, perhaps of one cause")).c_str());
  for (const Folded& f : findings) {
    std::fprintf(stderr, "  [%s] %s\n", f.first->rule.c_str(), without_name(f.first->text, k).c_str());
    print_lines(f.first->lines);
    if (f.first->rule == name_of(RuleId::endless_loop) && !f.first->lines.empty()) print_loops(f.first->lines.front());
    if (f.pairs > 1)
      std::fprintf(stderr, "    and %d more pair%s of lines; one barrier %s would order all of these\n", f.pairs - 1,
                   f.pairs == 2 ? "" : "s", place_of_barrier(f).c_str());
  }
  for (const Finding& f : k.remarks)
    std::fprintf(stderr, "  remark [%s] %s\n", f.rule.c_str(), without_name(f.text, k).c_str());
  if (!k.complete)
    std::fprintf(stderr,
                 "  only a part of its accesses was watched, since there are so many: a smaller problem is watched whole\n");
  if (!counts) return;
  for (const TensorTraffic& t : k.counters.traffic)
    std::fprintf(stderr, "  %s: %s bytes in %s sectors read, %s bytes in %s sectors written\n", t.tensor.c_str(),
                 number(t.read_bytes).c_str(), number(t.read_sectors).c_str(), number(t.written_bytes).c_str(),
                 number(t.written_sectors).c_str());
  for (const ArrayConflicts& a : k.conflicts)
    std::fprintf(stderr, "  %s bank conflicts at %s\n", number(a.count).c_str(), a.line.c_str());
  const Counters& c = k.counters;
  std::fprintf(stderr, "  %s barriers, %s warp operations, %s atomics", number(c.barriers).c_str(),
               number(c.warp_operations).c_str(), number(c.atomics).c_str());
  if (c.tensor_core_products != 0)
    std::fprintf(stderr, ", %s products on tensor cores", number(c.tensor_core_products).c_str());
  if (c.bank_conflicts != 0)
    std::fprintf(stderr, ", %s bank conflicts of ldmatrix and asynchronous copies", number(c.bank_conflicts).c_str());
  std::fprintf(stderr, "\n");
}

/// For common/run: "clean", "found", "unsupported".
void note_end(const char* how) {
  const char* const path = std::getenv("FLASH_RUN_DONE");
  std::FILE* const file = path == nullptr ? nullptr : std::fopen(path, "w");
  if (file == nullptr) return;
  std::fputs(how, file);
  std::fclose(file);
}

/// Says what was found; true if anything was.
bool report() {
  State& s = state();
  if (s.reported) return false;
  s.reported = true;
  std::fflush(stdout);
  collect();
  bool found = !s.of_host.empty();
  for (Kernel& k : s.kernels) {
    if (asked("FLASH_RUN_STRICT")) {
      for (Finding& f : k.remarks) k.findings.push_back(std::move(f));
      k.remarks.clear();
    }
    found |= !k.findings.empty();
  }
  note_end(found ? "found" : "clean");
  if (const char* const path = std::getenv("FLASH_RUN_JSON")) {
    if (std::FILE* const file = std::fopen(path, "w")) {
      std::fprintf(file, "{\"kernels\": %s, \"host\": %s}\n",
                   listed(s.kernels, [](const Kernel& k) { return json(k); }).c_str(),
                   listed(s.of_host, [](const Finding& f) { return json(f); }).c_str());
      std::fclose(file);
    }
    return found;
  }
  for (const Finding& f : s.of_host) {
    std::fprintf(stderr, "host: [%s] %s\n", f.rule.c_str(), f.text.c_str());
    print_lines(f.lines);
  }
  s.kernels.sort([](const Kernel& a, const Kernel& b) { return a.first_found < b.first_found; });  // causes before consequences
  for (const Kernel& k : s.kernels) print_report(k, asked("FLASH_RUN_COUNTS"));
  return found;
}

void at_exit() {
  if (report()) std::_Exit(1);
}
void at_signal(int number) {
  std::signal(SIGALRM, [](int) {
    constexpr char text[] = "the program was aborted with its heap in disorder, so there is no report\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, text, sizeof text - 1);
    std::signal(SIGABRT, SIG_DFL);
    std::abort();
  });
  alarm(5);  // what aborts may hold a lock of the heap
  if (number == SIGSEGV)
    std::fprintf(stderr, "%s: the host's code crashes\n", machine::words(machine::source_line_of_call(nullptr)).c_str());
  if (report()) std::_Exit(1);
  std::signal(number, SIG_DFL);
  std::raise(number);
}

}  // namespace

void stop_unsupported(const std::string& line) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", line.c_str());
  note_end("unsupported");
  std::_Exit(2);
}

void prepare_report() { std::signal(SIGSEGV, at_signal); }

void report_at_exit() {
  static const bool once = [] {
    (void)findings();
    (void)counters();
    std::atexit(at_exit);
    std::signal(SIGABRT, at_signal);
    return true;
  }();
  (void)once;
}

}  // namespace flash::plain

/// For the same program: nobody has written the memory that begins there, whatever it holds.
extern "C" void flash_unwritten(const void* begin) {
  flash::machine::set_poisoned(begin, true);
  flash::machine::global_writes().pages.erase(reinterpret_cast<std::uintptr_t>(begin) / 4 / flash::machine::page_words);
}

/// How much has been found so far, for a program that judges its kernels by it: docs/lab/judge.hpp.
extern "C" int flash_findings() {
  const flash::Findings found = flash::findings();
  std::size_t count = found.races.size() + found.unwritten.size();
  if (flash::plain::asked("FLASH_RUN_STRICT")) count += found.remarks.size();
  for (const flash::plain::Kernel& kernel : flash::plain::state().kernels) count += kernel.findings.size();
  return static_cast<int>(count);
}
