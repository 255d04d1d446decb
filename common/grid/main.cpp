// main() of the stages' test programs: doctest with --device=cpu (the default) or --device=gpu. Without a GPU the latter exits
// with 77, which CTest shows as skipped; so does a case that calls skip(). --variant=NAME: cases that look at all variants of the
// stage look at this one alone.
#include "common/grid/support.hpp"
#include "common/machine/error.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

std::unique_ptr<flash::Device> chosen_device;
std::string chosen_variant;
bool any_skipped = false;

}  // namespace

flash::Device& flash::grid::device() {
  if (chosen_device == nullptr) chosen_device = open_cpu();
  return *chosen_device;
}

const std::string& flash::grid::only_variant() { return chosen_variant; }

void flash::grid::skip(const std::string& reason) {
  std::printf("skipped: %s\n", reason.c_str());
  any_skipped = true;
}

int main(int argc, char** argv) {
  constexpr int bad_usage = 2, skipped = 77;
  const std::string variant = "--variant=";
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]).starts_with(variant)) chosen_variant = argv[i] + variant.size();
    if (std::strcmp(argv[i], "--device=gpu") != 0) continue;
    std::string why_not;
    chosen_device = flash::open_gpu(why_not);
    if (chosen_device == nullptr) {
      std::printf("skipped: %s\n", why_not.c_str());
      return skipped;
    }
  }
  if (!chosen_variant.empty() && flash::grid::variants().empty()) {
    std::fprintf(stderr, "this stage has no variant '%s'\n", chosen_variant.c_str());
    return bad_usage;
  }
  const int result = doctest::Context(argc, argv).run();
  return result == 0 && any_skipped ? skipped : result;
}
