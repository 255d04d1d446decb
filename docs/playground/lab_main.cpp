// The main() of a lab's page, in which its own is called flash_lab(). Switching fibers has unwound this one, and what it returns would be lost.
#include <cstdlib>

int flash_lab();

int main() { std::exit(flash_lab()); }
