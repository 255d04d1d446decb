// Binds the kernels of this folder to the harness, which parses the command line, runs, checks and reports.
#include "common/harness/stage.hpp"

int main(int argc, char** argv) {
  return flash::run_stage(
      {.name = "02_safe_softmax", .idea = "three-pass softmax with the max subtracted", .backward_stage = "01_naive"}, argc,
      argv);
}
