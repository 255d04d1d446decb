// The main() of a lab's page, in which its own is called flash_lab().
#include <cstdio>
#include <cstdlib>
#include <exception>

int flash_lab();

int main() {
  int code = 1;
  try {
    code = flash_lab();
  } catch (const std::exception& error) {  // uncaught, it would reach JavaScript as a number
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::exit(code);  // switching fibers has unwound main(), and what it returns is lost
}
