// The GPU of a build without nvcc.
#include "common/device/runtime.hpp"

namespace flash {

std::unique_ptr<Device> open_gpu(std::string& why_not) {
  why_not = "this program was built without nvcc, so it holds no GPU code";
  return nullptr;
}

}  // namespace flash
