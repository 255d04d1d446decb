// Binds the kernels of this folder to the harness, which parses the command line, runs, checks and reports.
#include "common/harness/stage.hpp"

int main(int argc, char** argv) {
  return flash::run_stage(
      {.name = "05_fa1_backward", .idea = "FlashAttention-1 backward: P recomputed, never stored", .backward_stage = ""}, argc,
      argv);
}
