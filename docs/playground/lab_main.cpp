// The main() of a lab's page, after docs/playground/kernels.py has filled in its programs: --variant NAME ... [-- ARGUMENT...] runs one of them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

// @DECLARED@

namespace {
struct {
  std::string_view name;
  int (*run)(int, char**);
} const programs[] = {
    // @LISTED@
};
}  // namespace

int main(int argc, char** argv) {
  char** const end = argv + argc;
  char** const name = std::find(argv, end, std::string_view("--variant")) + 1;
  char** const own = std::min(std::find(name, end, std::string_view("--")), end - 1);  // argv[0] of the program
  const auto found = std::ranges::find(programs, std::string_view(*name), [](const auto& program) { return program.name; });
  int code = 1;
  try {
    code = found->run(static_cast<int>(end - own), own);
  } catch (const std::exception& error) {  // uncaught, it would reach JavaScript as a number
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::exit(code);  // switching fibers has unwound main(), and what it returns is lost
}
