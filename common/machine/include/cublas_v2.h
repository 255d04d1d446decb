// cuBLAS as a reference on the CPU: products of matrices in column order, summed in double.
#pragma once

#include <cuda_bf16.h>

typedef struct flash_blas* cublasHandle_t;
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_NOT_SUPPORTED = 15 };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C };
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_8I = 3, CUDA_R_16BF = 14 };
typedef cudaDataType_t cudaDataType;
enum cublasComputeType_t {
  CUBLAS_COMPUTE_16F = 64,
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32F_FAST_16F = 74,
  CUBLAS_COMPUTE_32F_FAST_16BF = 75,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77
};
enum cublasMath_t { CUBLAS_DEFAULT_MATH = 0, CUBLAS_TENSOR_OP_MATH = 1, CUBLAS_PEDANTIC_MATH = 2, CUBLAS_TF32_TENSOR_OP_MATH = 3 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99 };

inline cublasStatus_t cublasCreate(cublasHandle_t* handle) { return *handle = nullptr, CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasDestroy(cublasHandle_t) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, std::size_t) { return CUBLAS_STATUS_SUCCESS; }
inline const char* cublasGetStatusString(cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS ? "success" : "cuBLAS error"; }

namespace flash::plain {
struct Matrix {
  const void* data;
  cudaDataType_t type;
  int leading;
  long long stride;
};
/// C = alpha op(A) op(B) + beta C, `count` times. alpha and beta are of type `scalar`.
cublasStatus_t gemm(cublasOperation_t a_op, cublasOperation_t b_op, int m, int n, int k, const void* alpha, const void* beta, cudaDataType_t scalar,
                    const Matrix& a, const Matrix& b, const Matrix& c, int count, Site);
}  // namespace flash::plain

#define FLASH_GEMM(T, name, type)                                                                                                                     \
  inline cublasStatus_t cublas##name##gemm(cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const T* alpha, const T* a, \
                                           int lda, const T* b, int ldb, const T* beta, T* c, int ldc, FLASH_SITE) {                                  \
    return flash::plain::gemm(ta, tb, m, n, k, alpha, beta, type, {a, type, lda, 0}, {b, type, ldb, 0}, {c, type, ldc, 0}, 1, site);                  \
  }                                                                                                                                                   \
  inline cublasStatus_t cublas##name##gemmStridedBatched(cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,             \
                                                         const T* alpha, const T* a, int lda, long long sa, const T* b, int ldb, long long sb,        \
                                                         const T* beta, T* c, int ldc, long long sc, int count, FLASH_SITE) {                         \
    return flash::plain::gemm(ta, tb, m, n, k, alpha, beta, type, {a, type, lda, sa}, {b, type, ldb, sb}, {c, type, ldc, sc}, count, site);           \
  }
FLASH_GEMM(float, S, CUDA_R_32F)
FLASH_GEMM(double, D, CUDA_R_64F)
FLASH_GEMM(__half, H, CUDA_R_16F)
template <class Compute, class Algorithm>
cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void* alpha, const void* a,
                            cudaDataType_t type_a, int lda, const void* b, cudaDataType_t type_b, int ldb, const void* beta, void* c,
                            cudaDataType_t type_c, int ldc, Compute compute, Algorithm, FLASH_SITE) {
  const cudaDataType_t scalar = static_cast<int>(compute) == CUBLAS_COMPUTE_16F ? CUDA_R_16F : CUDA_R_32F;
  return flash::plain::gemm(ta, tb, m, n, k, alpha, beta, scalar, {a, type_a, lda, 0}, {b, type_b, ldb, 0}, {c, type_c, ldc, 0}, 1, site);
}
template <class Compute, class Algorithm>
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void* alpha,
                                          const void* a, cudaDataType_t type_a, int lda, long long sa, const void* b, cudaDataType_t type_b, int ldb,
                                          long long sb, const void* beta, void* c, cudaDataType_t type_c, int ldc, long long sc, int count,
                                          Compute compute, Algorithm, FLASH_SITE) {
  const cudaDataType_t scalar = static_cast<int>(compute) == CUBLAS_COMPUTE_16F ? CUDA_R_16F : CUDA_R_32F;
  return flash::plain::gemm(ta, tb, m, n, k, alpha, beta, scalar, {a, type_a, lda, sa}, {b, type_b, ldb, sb}, {c, type_c, ldc, sc}, count, site);
}
