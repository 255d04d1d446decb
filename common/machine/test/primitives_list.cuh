// Included by one source for each backend, which defines PRIMITIVES_OF as the name of its list.
#include "common/machine/test/wgmma_primitives.cuh"

namespace flash {
namespace {

template <void (*Kernel)(const unsigned*, unsigned*)>
void launch_one(const unsigned* in, unsigned* out) {
  launch("primitive", {dim3(1), dim3(64), 64 * sizeof(unsigned)}, Kernel, in, out);
}
template <void (*Kernel)(const unsigned*, unsigned*), int Threads = 64>
void launch_hopper(const unsigned* in, unsigned* out) {
  launch("primitive", {dim3(1), dim3(Threads), Shared<4, 64>::bytes}, Kernel, in, out);
}

/// `words` as a tensor [1, heads, rows, cols] of fp16.
TensorMap map_of(const unsigned* words, int heads, int rows, int cols, int box_rows, const char* name = "words") {
  const std::int64_t row = cols, head = row * rows;
  return tensor_map({const_cast<unsigned*>(words), name, Dtype::fp16, {1, heads, rows, cols}, {head * heads, head, row, 1}},
                    box_rows);
}
void launch_tma_load(const unsigned* in, unsigned* out) {
  launch("tma_load", {dim3(1), dim3(64), Shared<2, 16>::bytes}, tma_load_kernel, map_of(in, 2, 12, 72, 16), out);
}
void launch_tma_store(const unsigned* in, unsigned* out) {
  launch("tma_store", {dim3(1), dim3(64), Shared<1, 32>::bytes}, tma_store_kernel, in, map_of(out, 1, 16, 40, 32));
}
void launch_ring(const unsigned* in, unsigned* out) {
  launch("ring_inputs", {dim3(1), dim3(160), 0}, ring_inputs_kernel, in, out);
  launch("ring", {dim3(1), dim3(160), Shared<3, 64>::bytes}, ring_kernel, map_of(out + ring_Q, 1, 64, 64, 64, "Q"),
         map_of(out + ring_K, 1, ring_keys, 64, 64, "K"), out);
}

template <class T, int N, Major A, Major B, bool FromRegisters = false>
Primitive wgmma_primitive(const char* name) {
  return {name, N / 2, launch_hopper<wgmma_kernel<T, N, A, B, FromRegisters>, 128>, 90, 90, 128};
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
      {"acquire_release", 1, launch_one<acquire_release_kernel>},
      {"bits", 8, launch_one<bits_kernel>},
      {"float16", 6, launch_one<float16_kernel>},
      {"ldmatrix_x1", 1, launch_one<ldmatrix_kernel<1, false>>},
      {"ldmatrix_x2", 2, launch_one<ldmatrix_kernel<2, false>>},
      {"ldmatrix_x4", 4, launch_one<ldmatrix_kernel<4, false>>},
      {"ldmatrix_x4_trans", 4, launch_one<ldmatrix_kernel<4, true>>},
      {"mma_m16n8k8_f16", 4, launch_one<mma_kernel<false, 8>>},
      {"mma_m16n8k16_f16", 4, launch_one<mma_kernel<false, 16>>},
      {"mma_m16n8k16_bf16", 4, launch_one<mma_kernel<true, 16>>, 80},
      {"exp2_approx", 6, launch_one<exp2_approx_kernel>},
      {"tanh_approx", 6, launch_one<tanh_approx_kernel>},
      {"atomic_add4", 4, launch_one<atomic_add4_kernel>},
      {"cp_async", 13, launch_one<cp_async_kernel>},
      {"tma_load", 16, launch_tma_load, 90},
      {"tma_store", 5, launch_tma_store, 90},
      {"bulk", 4, launch_hopper<bulk_kernel>, 90},
      {"mbarrier_ring", 1, launch_hopper<mbarrier_ring_kernel>, 90},
      {"named_barrier", 1, launch_hopper<named_barrier_kernel>},
      {"stmatrix_x4", 4, launch_hopper<stmatrix_kernel>, 90},
      {"elect", 1, launch_hopper<elect_kernel>, 90},
      {"setmaxnreg", 1, launch_hopper<setmaxnreg_kernel, 384>, 90, 90, 384},
      wgmma_primitive<__half, 64, Major::k, Major::k>("wgmma_k_k"),
      wgmma_primitive<__nv_bfloat16, 32, Major::k, Major::k>("wgmma_k_k_bf16"),
      wgmma_primitive<__half, 80, Major::k, Major::mn>("wgmma_k_mn"),
      wgmma_primitive<__half, 96, Major::mn, Major::k>("wgmma_mn_k"),
      wgmma_primitive<__half, 64, Major::mn, Major::mn>("wgmma_mn_mn"),
      wgmma_primitive<__nv_bfloat16, 128, Major::mn, Major::mn>("wgmma_mn_mn_bf16"),
      wgmma_primitive<__half, 96, Major::k, Major::k, true>("wgmma_registers_k"),
      wgmma_primitive<__half, 128, Major::k, Major::mn, true>("wgmma_registers_mn"),
      wgmma_primitive<__nv_bfloat16, 80, Major::k, Major::mn, true>("wgmma_registers_mn_bf16"),
      {"ring", 120, launch_ring, 90, 90, 160},
  };
  return list;
}

}  // namespace flash
