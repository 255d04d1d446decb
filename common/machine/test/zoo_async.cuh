// Hazards of asynchronous copies and products: what the kernels of zoo_async_*.cuh share, each with a twin that is correct. In each, `wrong` is the mistake; the line that it spoils ends with `// BUG` and the case's name.
#pragma once

#include "common/machine/cuda.cuh"
#include "common/machine/float16.cuh"
#include "common/machine/wgmma.cuh"

#include <vector>

namespace flash {

/// Global memory of a case: a tensor of 128 rows of 64 fp16 numbers, and what the kernel leaves.
struct AsyncMemory {
  alignas(16) unsigned in[4096];
  alignas(16) unsigned out[2048];
};

struct AsyncCase {
  const char* name;
  const char* says;  ///< part of the simulator's message; null: there is only the correct kernel, which looks like a mistake
  void (*wrong)(void*);   ///< launches the kernel on an AsyncMemory of the device
  void (*right)(void*);   ///< launches its twin
  const char* file = "";  ///< that has the line `// BUG name`
};

namespace {

using Memory = AsyncMemory;

constexpr int slot_bytes = 1024, slot_words = slot_bytes / 4;  // a box of 8 rows

__device__ inline int me() { return static_cast<int>(threadIdx.x); }
__device__ inline int lane() { return me() % 32; }
__device__ inline int warp() { return me() / 32; }

/// Slots for boxes, eight of which are a tile of wgmma, and mbarriers.
struct Shared {
  static constexpr int slots = 24, bytes = slots * slot_bytes + 64;
  unsigned* words = dynamic_shared<unsigned>(bytes / 4);
  __device__ unsigned* slot(int i) const { return words + i * slot_words; }
  __device__ __half* tile(int i) const { return reinterpret_cast<__half*>(slot(8 * i)); }
  __device__ Mbarrier& barrier(int i) const { return reinterpret_cast<Mbarrier*>(words + slots * slot_words)[i]; }
};

/// Four mbarriers, each for so many arrivals.
__device__ inline void start(const Shared& shared, int first = 1, int second = 1, int third = 1, int fourth = 1) {
  if (me() == 0) {
    mbarrier_init(shared.barrier(0), first);
    mbarrier_init(shared.barrier(1), second);
    mbarrier_init(shared.barrier(2), third);
    mbarrier_init(shared.barrier(3), fourth);
    fence_mbarrier_init();
  }
  __syncthreads();
}

using AsyncKernel = void (*)(Memory*, TensorMap);

template <AsyncKernel Kernel, int Threads>
void launch_async(void* memory) {
  const TensorRef in{static_cast<Memory*>(memory)->in, "in", Dtype::fp16, {1, 1, 128, 64}, {8192, 8192, 64, 1}};
  launch("zoo", {dim3(1), dim3(Threads), Shared::bytes}, Kernel, static_cast<Memory*>(memory), tensor_map(in, 8));
}
/// The twins of a kernel: `mistake` is one of an enum's, or true, of which the opposite is right.
#define ASYNC_CASE(name, kernel, mistake, right, threads, says) \
  AsyncCase { name, says, launch_async<kernel<mistake>, threads>, launch_async<kernel<right>, threads> }
#define ASYNC_TWINS(kernel, threads, says) ASYNC_CASE(#kernel, kernel, true, false, threads, says)
/// Correct, though a tool might think otherwise.
#define ASYNC_CORRECT(name, kernel, threads) \
  AsyncCase { name, nullptr, nullptr, launch_async<kernel, threads> }

}  // namespace
}  // namespace flash
