// __half, __half2, __nv_bfloat16, __nv_bfloat162 and their functions, for kernels in 16 bits.
#pragma once

#ifdef __CUDACC__
#include "common/machine/types.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

namespace flash {
inline namespace gpu {

/// Calls f(T{}) with the type of elements in `dtype`, which is 16 bits wide: __half or __nv_bfloat16. (In the simulator one type
/// stands for both.)
template <class F>
void run_in_16_bits(Dtype dtype, F f) {
  if (dtype == Dtype::fp16) {
    f(__half{});
  } else {
    f(__nv_bfloat16{});
  }
}

/// Whether T is fp16, not bf16.
template <class T>
__device__ constexpr bool is_fp16() {
  return std::is_same_v<T, __half>;
}

}  // namespace gpu
}  // namespace flash
#else
#include "common/machine/cpu/float16.hpp"
#endif
