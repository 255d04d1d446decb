// The GPU of a build without GPU code.
#include "common/machine/device.hpp"

namespace flash {

std::unique_ptr<Device> open_gpu(std::string& why_not) {
  why_not = "this program holds no GPU code: when it was configured, " FLASH_WHY_NO_CUDA;
  return nullptr;
}

}  // namespace flash
