// A caller's stream. launch() starts kernels on the default stream: that one waits for what the caller has queued, and the caller's for it.
#pragma once

namespace flash {

struct Variant;

/// common/binding/merge.cuh for the GPU.
const Variant& gpu_merge();

/// What starts on the default stream from now on waits for what `stream` holds already.
void wait_for(void* stream);

/// What is queued on `stream` from now on waits for what has been started on the default stream.
void let_wait(void* stream);

}  // namespace flash
