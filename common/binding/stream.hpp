// A caller's stream. launch() starts kernels on the default stream: that one waits for what the caller has queued, and the caller's for it.
#pragma once

namespace flash {

struct Variant;

/// common/binding/merge.cuh for the GPU.
const Variant& gpu_merge();

/// The GPU that is current for this thread; 0 in a build without GPU code.
int current_gpu();

/// Work that starts on the default stream from now on waits for the work that `stream` holds already.
void wait_for(void* stream);

/// Work queued on `stream` from now on waits for the work that has been started on the default stream.
void let_wait(void* stream);

}  // namespace flash
