// A caller's stream: the kernels that one thread launches go to it.
#pragma once

#include <cstddef>

namespace flash {

/// The GPU that is current for this thread; 0 in a build without GPU code.
int current_gpu();

/// This thread's launches go to it from now on; nullptr is the default stream.
void launch_on(void* stream);

/// Queues a copy to the GPU on that stream. What is copied may change once this returns.
void copy_to_gpu(void* to, const void* from, std::size_t bytes);

}  // namespace flash
