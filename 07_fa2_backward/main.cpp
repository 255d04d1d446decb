// Binds the kernels of this folder to the harness, which parses the command line, runs, checks and reports.
#include "common/harness/stage.hpp"

int main(int argc, char** argv) {
  return flash::run_stage(
      {.name = "07_fa2_backward", .idea = "FlashAttention-2 backward: blocks over K and V, warp-tiled", .backward_stage = ""},
      argc, argv);
}
