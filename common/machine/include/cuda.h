// The driver API: the maps of tensors that TMA needs.
#pragma once

#include <cuda_runtime.h>

typedef enum cudaError_enum { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1, CUDA_ERROR_NOT_SUPPORTED = 801 } CUresult;
typedef std::uint32_t cuuint32_t;
typedef std::uint64_t cuuint64_t;
typedef int CUdevice;
typedef struct flash_context* CUcontext;
typedef cudaStream_t CUstream;
typedef unsigned long long CUdeviceptr;

enum CUtensorMapDataType {
  CU_TENSOR_MAP_DATA_TYPE_UINT8,
  CU_TENSOR_MAP_DATA_TYPE_UINT16,
  CU_TENSOR_MAP_DATA_TYPE_UINT32,
  CU_TENSOR_MAP_DATA_TYPE_INT32,
  CU_TENSOR_MAP_DATA_TYPE_UINT64,
  CU_TENSOR_MAP_DATA_TYPE_INT64,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
  CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
};
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_INTERLEAVE_16B, CU_TENSOR_MAP_INTERLEAVE_32B };
enum CUtensorMapSwizzle { CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_32B, CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_128B };
enum CUtensorMapL2promotion {
  CU_TENSOR_MAP_L2_PROMOTION_NONE,
  CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
  CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
  CU_TENSOR_MAP_L2_PROMOTION_L2_256B
};
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA };

struct alignas(64) CUtensorMap {
  flash::TensorMap map;
  std::uint64_t mark;  ///< flash_map_mark, if it has been encoded
};
constexpr std::uint64_t flash_map_mark = 0x70616d726f736e65;

/// Boxes that are simulated: 64 columns of 16 bits, swizzled by 128 bytes, in rows of a tensor of 2 to 4 dimensions.
CUresult cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t rank, void* memory, const cuuint64_t* extents, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill);
typedef decltype(&cuTensorMapEncodeTiled) PFN_cuTensorMapEncodeTiled;
typedef PFN_cuTensorMapEncodeTiled PFN_cuTensorMapEncodeTiled_v12000;

inline CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
inline CUresult cuGetErrorString(CUresult, const char** text) { return *text = "driver error", CUDA_SUCCESS; }
inline CUresult cuGetErrorName(CUresult, const char** text) { return *text = "driver error", CUDA_SUCCESS; }

enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess, cudaDriverEntryPointSymbolNotFound };
enum { cudaEnableDefault = 0 };
cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, unsigned long long flags, cudaDriverEntryPointQueryResult* = nullptr);
inline cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long flags,
                                                    cudaDriverEntryPointQueryResult* result = nullptr) {
  return cudaGetDriverEntryPoint(name, function, flags, result);
}
