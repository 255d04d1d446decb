// Included by one source for each backend, which defines PRIMITIVES_OF as the name of its list.
#include "common/simt/test/tensor_primitives.cuh"

namespace flash {
namespace {

template <void (*Kernel)(const unsigned*, unsigned*)>
void launch_one(const unsigned* in, unsigned* out) {
  launch("primitive", {dim3(1), dim3(primitive_threads), 64 * sizeof(unsigned)}, Kernel, in, out);
}

}  // namespace

const std::vector<Primitive>& PRIMITIVES_OF() {
  static const std::vector<Primitive> list = {
      {"shuffles", 8, launch_one<shuffles_kernel>},
      {"wide_shuffle", 2, launch_one<wide_shuffle_kernel>},
      {"partial_masks", 1, launch_one<partial_masks_kernel>},
      {"votes", 7, launch_one<votes_kernel>},
      {"reductions", 8, launch_one<reductions_kernel>, 80},
      {"barriers", 6, launch_one<barriers_kernel>},
      {"atomics", 8, launch_one<atomics_kernel>},
      {"bits", 8, launch_one<bits_kernel>},
      {"float16", 6, launch_one<float16_kernel>},
      {"ldmatrix_x1", 1, launch_one<ldmatrix_kernel<1, false>>},
      {"ldmatrix_x2", 2, launch_one<ldmatrix_kernel<2, false>>},
      {"ldmatrix_x4", 4, launch_one<ldmatrix_kernel<4, false>>},
      {"ldmatrix_x1_trans", 1, launch_one<ldmatrix_kernel<1, true>>},
      {"ldmatrix_x2_trans", 2, launch_one<ldmatrix_kernel<2, true>>},
      {"ldmatrix_x4_trans", 4, launch_one<ldmatrix_kernel<4, true>>},
      {"mma_m16n8k8_f16", 4, launch_one<mma_kernel<false, 8>>},
      {"mma_m16n8k8_bf16", 4, launch_one<mma_kernel<true, 8>>, 80},
      {"mma_m16n8k16_f16", 4, launch_one<mma_kernel<false, 16>>},
      {"mma_m16n8k16_bf16", 4, launch_one<mma_kernel<true, 16>>, 80},
      {"exp2_approx", 6, launch_one<exp2_approx_kernel>},
      {"atomic_add4", 4, launch_one<atomic_add4_kernel>},
      {"cp_async", 13, launch_one<cp_async_kernel>},
  };
  return list;
}

}  // namespace flash
