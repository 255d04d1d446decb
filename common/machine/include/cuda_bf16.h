// bf16, global as in CUDA; cuda_fp16.h has what it shares with fp16.
#pragma once

#include <cuda_fp16.h>

using flash::__bfloat1622float2, flash::__bfloat162bfloat162, flash::__bfloat162float, flash::__bfloat16_as_ushort, flash::__float22bfloat162_rn;
using flash::__float2bfloat16, flash::__float2bfloat162_rn, flash::__float2bfloat16_rn, flash::__floats2bfloat162_rn, flash::__halves2bfloat162;
using flash::__nv_bfloat16, flash::__nv_bfloat162, flash::__ushort_as_bfloat16;
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
inline __nv_bfloat16 __double2bfloat16(double x) { return static_cast<float>(x); }
inline __nv_bfloat16 __int2bfloat16_rn(int x) { return static_cast<float>(x); }
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) { return a.x; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) { return a.y; }
