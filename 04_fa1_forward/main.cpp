// Binds the kernel of this folder to the harness, which parses the command line, runs, checks and reports.
#include "common/harness/stage.hpp"

int main(int argc, char** argv) {
  return flash::run_stage({.name = "04_fa1_forward",
                           .idea = "FlashAttention-1: S never reaches HBM; K/V outer loop, a thread per row",
                           .backward_stage = "05_fa1_backward"},
                          argc, argv);
}
