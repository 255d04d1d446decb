// Streams of a build without GPU code: the simulator has none.
#include "common/binding/stream.hpp"

namespace flash {

int current_gpu() { return 0; }
OnStream::OnStream(void*) : before_(nullptr) {}
OnStream::~OnStream() = default;
void copy_to_gpu(void*, const void*, std::size_t) {}

}  // namespace flash
