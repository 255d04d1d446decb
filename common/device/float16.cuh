// __half, __half2, __nv_bfloat16, __nv_bfloat162 and their functions, for kernels in 16 bits.
#pragma once

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
#include "common/simt/float16.hpp"
#endif
