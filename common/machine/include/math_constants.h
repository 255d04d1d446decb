// The constants of CUDA's math_constants.h that kernels use.
#pragma once

#define CUDART_INF_F INFINITY
#define CUDART_NAN_F NAN
#define CUDART_INF static_cast<double>(INFINITY)
#define CUDART_NAN static_cast<double>(NAN)
#define CUDART_PI_F 3.141592654f
#define CUDART_PI 3.1415926535897931
#define CUDART_PIO2_F 1.570796327f
#define CUDART_SQRT_TWO_F 1.414213562f
#define CUDART_SQRT_HALF_F 0.707106781f
#define CUDART_L2E_F 1.442695041f
#define CUDART_LN2_F 0.693147181f
#define CUDART_LN2 0.69314718055994531
#define CUDART_MAX_NORMAL_F 3.402823466e38f
#define CUDART_MIN_DENORM_F 1.401298464e-45f
