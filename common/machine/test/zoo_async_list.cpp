#include "common/machine/test/zoo_async_copies.cuh"
#include "common/machine/test/zoo_async_loads.cuh"
#include "common/machine/test/zoo_async_rings.cuh"
#include "common/machine/test/zoo_async_wgmma.cuh"

namespace flash {

std::vector<AsyncCase> async_cases() {
  std::vector<AsyncCase> all;
  const auto add = [&](const char* file, std::vector<AsyncCase> cases) {
    for (AsyncCase& each : cases) {
      each.file = file;
      all.push_back(each);
    }
  };
  add("zoo_async_loads.cuh", load_cases());
  add("zoo_async_rings.cuh", ring_cases());
  add("zoo_async_copies.cuh", copy_cases());
  add("zoo_async_wgmma.cuh", wgmma_cases());
  return all;
}

}  // namespace flash
