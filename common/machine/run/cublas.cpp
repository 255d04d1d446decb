// Products of matrices for include/cublas_v2.h.
#include "common/machine/cpu/allocations.hpp"

#include <cublas_v2.h>

namespace flash::plain {
namespace {

double load(cudaDataType_t type, const void* data, long long i, Site site) {
  switch (type) {
    case CUDA_R_32F:
      return static_cast<const float*>(data)[i];
    case CUDA_R_64F:
      return static_cast<const double*>(data)[i];
    case CUDA_R_16F:
      return static_cast<const __half*>(data)[i];
    case CUDA_R_16BF:
      return static_cast<const __nv_bfloat16*>(data)[i];
    default:
      unsupported("cuBLAS with elements other than fp64, fp32, fp16 and bf16", site);
  }
}
void store(cudaDataType_t type, void* data, long long i, double value) {
  if (type == CUDA_R_32F) static_cast<float*>(data)[i] = static_cast<float>(value);
  if (type == CUDA_R_64F) static_cast<double*>(data)[i] = value;
  if (type == CUDA_R_16F) static_cast<__half*>(data)[i] = static_cast<float>(value);
  if (type == CUDA_R_16BF) static_cast<__nv_bfloat16*>(data)[i] = static_cast<float>(value);
}

}  // namespace

cublasStatus_t gemm(cublasOperation_t a_op, cublasOperation_t b_op, int m, int n, int k, const void* alpha, const void* beta,
                    cudaDataType_t scalar, const Matrix& a, const Matrix& b, const Matrix& c, int count, Site site) {
  const double by = load(scalar, alpha, 0, site), keep = load(scalar, beta, 0, site);
  const unsigned bytes = c.type == CUDA_R_64F ? 8 : c.type == CUDA_R_32F ? 4 : 2;
  auto* const to = const_cast<void*>(c.data);
  for (long long i = 0; i < count; ++i) {
    for (long long col = 0; col < n; ++col) {
      for (long long row = 0; row < m; ++row) {
        double sum = 0;
        for (long long l = 0; l < k; ++l) {
          const long long at_a = a_op == CUBLAS_OP_N ? row + l * a.leading : l + row * a.leading;
          const long long at_b = b_op == CUBLAS_OP_N ? l + col * b.leading : col + l * b.leading;
          sum += load(a.type, a.data, i * a.stride + at_a, site) * load(b.type, b.data, i * b.stride + at_b, site);
        }
        const long long at = i * c.stride + row + col * c.leading;
        store(c.type, to, at, by * sum + (keep == 0 ? 0 : keep * load(c.type, to, at, site)));
      }
      filled_by_host(static_cast<std::byte*>(to) + (i * c.stride + col * c.leading) * bytes,
                     static_cast<std::size_t>(m) * bytes);
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace flash::plain
