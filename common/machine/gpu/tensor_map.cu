// Maps for the TMA. The driver encodes them. Its function is looked up through the run-time library, so that nothing links
// libcuda, which machines without a GPU lack.
#include "common/machine/gpu/check.cuh"
#include "common/machine/hopper.cuh"

#include <stdexcept>

namespace flash {
namespace gpu {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode encoder() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found),
             "the driver's cuTensorMapEncodeTiled");
#else
  check_cuda(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &found),
             "the driver's cuTensorMapEncodeTiled");
#endif
  if (found != cudaDriverEntryPointSuccess || entry == nullptr)
    throw DeviceError("the driver has no cuTensorMapEncodeTiled: it is older than CUDA 12");
  return reinterpret_cast<Encode>(entry);
}

}  // namespace

TensorMap tensor_map(const TensorRef& t, int box_rows) {
  require_tensor_map(t, box_rows);
  static const Encode encode = encoder();
  const auto extent = [&](std::size_t axis) { return static_cast<cuuint64_t>(t.shape[axis]); };
  const cuuint64_t extents[4] = {extent(3), extent(2), extent(1), extent(0)};
  cuuint64_t strides[3];
  for (std::size_t i = 0; i < 3; ++i) strides[i] = static_cast<cuuint64_t>(tensor_map_strides(t)[i]);
  const cuuint32_t box[4] = {tensor_map_cols, static_cast<cuuint32_t>(box_rows), 1, 1}, steps[4] = {1, 1, 1, 1};
  const CUtensorMapDataType type = t.dtype == Dtype::fp16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  TensorMap result;
  const auto encoded = [&] {
    return encode(&result.map, type, 4, t.data, extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                  CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CUresult status = encoded();
  if (status ==
      CUDA_ERROR_INVALID_CONTEXT) {  // the run-time library makes one at a thread's first call, which may be still to come
    int device = 0;
    check_cuda(cudaGetDevice(&device), "the device of this thread");
    check_cuda(cudaSetDevice(device), "a context for this thread");
    status = encoded();
  }
  if (status != CUDA_SUCCESS)
    throw DeviceError(std::string("the driver makes no tensor map of ") + t.name + ": error " + std::to_string(status));
  return result;
}

}  // namespace gpu
}  // namespace flash
