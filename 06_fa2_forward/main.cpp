// Binds the kernels of this folder to the harness, which parses the command line, runs, checks and reports.
#include "common/harness/stage.hpp"

int main(int argc, char** argv) {
  return flash::run_stage({.name = "06_fa2_forward",
                           .idea = "FlashAttention-2: Q outer loop, a row stays on the chip until it is finished",
                           .backward_stage = "07_fa2_backward"},
                          argc, argv);
}
