// For tests: the program of a stage with the kernel of half_kernel.cpp.
#include "common/harness/stage.hpp"

int main(int argc, char** argv) {
  return flash::run_stage({.name = "97_half", .idea = "a stage for tests", .backward_stage = ""}, argc, argv);
}
