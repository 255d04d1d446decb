// A caller's stream: the kernels that one thread launches go to it.
#pragma once

#include <span>

namespace flash {

/// The GPU that is current for this thread; 0 in a build without GPU code.
int current_gpu();

/// This thread's launches go to it from now on; nullptr is the default stream.
void launch_on(void* stream);

/// Queues a kernel on that stream that writes these numbers: unlike a copy, a CUDA graph keeps them.
void write_on_gpu(int* to, std::span<const int> from);

}  // namespace flash
