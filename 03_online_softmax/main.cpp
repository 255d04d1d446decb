// Binds the kernels of this folder to the harness, which parses the command line, runs, checks and reports.
#include "common/harness/stage.hpp"

int main(int argc, char** argv) {
  return flash::run_stage(
      {.name = "03_online_softmax", .idea = "max and sum in one pass; the associative merge", .backward_stage = "01_naive"},
      argc, argv);
}
