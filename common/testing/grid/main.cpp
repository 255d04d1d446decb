// main() of the stages' test programs: doctest with --device=cpu (the default) or --device=gpu. Without a GPU the latter exits
// with 77, which CTest shows as skipped; so does a case that calls skip().
#include "common/device/error.hpp"
#include "common/testing/grid/support.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace {

std::unique_ptr<flash::Device> chosen_device;
bool any_skipped = false;

}  // namespace

flash::Device& flash::grid::device() {
  if (chosen_device == nullptr) chosen_device = open_cpu();
  return *chosen_device;
}

void flash::grid::skip(const std::string& reason) {
  std::printf("skipped: %s\n", reason.c_str());
  any_skipped = true;
}

int main(int argc, char** argv) {
  constexpr int skipped = 77;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--device=gpu") != 0) continue;
    std::string why_not;
    chosen_device = flash::open_gpu(why_not);
    if (chosen_device == nullptr) {
      std::printf("skipped: %s\n", why_not.c_str());
      return skipped;
    }
  }
  const int result = doctest::Context(argc, argv).run();
  return result == 0 && any_skipped ? skipped : result;
}
