// For tests: a kernel in 16 bits, with head dimensions up to 256, that knows no bias. It is no chapter: it only runs.
#include "common/device/device.cuh"
#include "common/device/float16.cuh"

namespace flash {
namespace {

FLASH_HOST_DEVICE float to_float(__half x) { return __half2float(x); }
FLASH_HOST_DEVICE float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
void round_into(__half& to, float x) { to = __float2half_rn(x); }
void round_into(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }

/// A thread per query. Grid: (tiles of 32 queries, H, B).
template <class T>
__global__ void attention_kernel(Problem problem, Tensor<const T> Q_all, Tensor<const T> K_all, Tensor<const T> V_all,
                                 Tensor<T> O_all, Tensor<float> L_all) {
  const int b = blockIdx.z, h = blockIdx.y, i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= problem.Nq) return;
  const Matrix<const T> Q = Q_all.head(b, h), K = K_all.head(b, problem.kv_head(h)), V = V_all.head(b, problem.kv_head(h));
  float l = 0;
  float O[256] = {};
  for (int j = 0; j < problem.visible_keys(i); ++j) {
    float s = 0;
    for (int c = 0; c < problem.d; ++c) s += to_float(Q(i, c)) * to_float(K(j, c));
    const float p = expf(problem.scale * s);
    l += p;
    for (int c = 0; c < problem.d; ++c) O[c] += p * to_float(V(j, c));
  }
  for (int c = 0; c < problem.d; ++c) {
    T rounded;
    round_into(rounded, l > 0 ? O[c] / l : 0.0f);
    O_all.head(b, h)(i, c) = rounded;
  }
  L_all.head_vector(b, h)(i) = logf(l);
}

template <class T>
void launch_kernel(const Attention& a) {
  const FullProblem& p = a.problem;
  launch("attention", {dim3(blocks_for(p.Nq, 32), static_cast<unsigned>(p.H), static_cast<unsigned>(p.B)), dim3(32)},
         attention_kernel<T>, p, view<const T>(a.Q), view<const T>(a.K), view<const T>(a.V), view<T>(a.O), view<float>(a.L));
}

void forward(const Attention& a) {
  if (a.problem.dtype == Dtype::fp16) {
    launch_kernel<__half>(a);
  } else {
    launch_kernel<__nv_bfloat16>(a);
  }
}

std::string refuse_on(const FullProblem& p, const DeviceLimits& limits) {
  return p.dtype == Dtype::bf16 && limits.sm < 80 ? "bf16 needs compute capability 8.0 or newer" : "";
}

std::vector<TileChoice> tiles(const FullProblem&, Pass, const DeviceLimits&) { return {{{32, 1}, 32, 0, "the only one"}}; }

const Variant half{.name = "half",
                   .idea = "16 bits",
                   .forward = forward,
                   .tiles = tiles,
                   .dtypes = {Dtype::fp16, Dtype::bf16},
                   .max_head_dim = 256,
                   .takes = every_kernel_takes & ~every_bias,
                   .refuse_on = refuse_on};
const RegisterVariant registered(Backend::cpu, 1, half);

}  // namespace
}  // namespace flash
