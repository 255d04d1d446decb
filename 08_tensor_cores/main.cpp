// Binds the kernels of this folder to the harness, which parses the command line, runs, checks and reports.
#include "common/harness/stage.hpp"

int main(int argc, char** argv) {
  return flash::run_stage({.name = "08_tensor_cores",
                           .idea = "FlashAttention-2 in fp16 and bf16 on tensor cores, forward and backward",
                           .backward_stage = ""},
                          argc, argv);
}
