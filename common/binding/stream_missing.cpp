// Streams of a build without GPU code: the simulator has none.
#include "common/binding/stream.hpp"

#include "common/machine/error.hpp"

namespace flash {

const Variant& gpu_merge() { throw DeviceError("this library has no GPU code"); }

int current_gpu() { return 0; }
void wait_for(void*) {}
void let_wait(void*) {}

}  // namespace flash
