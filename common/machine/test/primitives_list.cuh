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
Primitive wgmma_primitive(const char* name, unsigned hash) {
  return {name, N / 2, hash, launch_hopper<wgmma_kernel<T, N, A, B, FromRegisters>, 128>, 90, 90, 128};
}

}  // namespace

const std::vector<Primitive>& PRIMITIVES_OF() {
  static const std::vector<Primitive> list = {
      {"shuffles", 8, 0x894619d7u, launch_one<shuffles_kernel>},
      {"wide_shuffle", 2, 0xfcbb89bbu, launch_one<wide_shuffle_kernel>},
      {"partial_masks", 1, 0x566a10f5u, launch_one<partial_masks_kernel>},
      {"votes", 7, 0x2bf5b86fu, launch_one<votes_kernel>},
      {"reductions", 8, 0x78545311u, launch_one<reductions_kernel>, 80},
      {"barriers", 6, 0x16364e71u, launch_one<barriers_kernel>},
      {"atomics", 8, 0xdd869b45u, launch_one<atomics_kernel>},
      {"acquire_release", 1, 0x496bbd7bu, launch_one<acquire_release_kernel>},
      {"bits", 8, 0xf57020b6u, launch_one<bits_kernel>},
      {"float16", 6, 0xd7ee8034u, launch_one<float16_kernel>},
      {"ldmatrix_x1", 1, 0xa113931au, launch_one<ldmatrix_kernel<1, false>>},
      {"ldmatrix_x2", 2, 0xd8e81e42u, launch_one<ldmatrix_kernel<2, false>>},
      {"ldmatrix_x4", 4, 0x53262a8bu, launch_one<ldmatrix_kernel<4, false>>},
      {"ldmatrix_x4_trans", 4, 0x709bd3cau, launch_one<ldmatrix_kernel<4, true>>},
      {"mma_m16n8k8_f16", 4, 0x256986e2u, launch_one<mma_kernel<false, 8>>},
      {"mma_m16n8k16_f16", 4, 0x56999b9fu, launch_one<mma_kernel<false, 16>>},
      {"mma_m16n8k16_bf16", 4, 0x56999b9fu, launch_one<mma_kernel<true, 16>>, 80},
      {"exp2_approx", 6, 0xd25c5e1eu, launch_one<exp2_approx_kernel>},
      {"tanh_approx", 6, 0x728e5de1u, launch_one<tanh_approx_kernel>},
      {"atomic_add4", 4, 0x151fd9bau, launch_one<atomic_add4_kernel>},
      {"cp_async", 13, 0x77addac7u, launch_one<cp_async_kernel>},
      {"tma_load", 16, 0x65c019deu, launch_tma_load, 90},
      {"tma_store", 5, 0xf876a9e0u, launch_tma_store, 90},
      {"bulk", 4, 0x02b60b37u, launch_hopper<bulk_kernel>, 90},
      {"mbarrier_ring", 1, 0x1a7436dcu, launch_hopper<mbarrier_ring_kernel>, 90},
      {"named_barrier", 1, 0x1a7436dcu, launch_hopper<named_barrier_kernel>},
      {"stmatrix_x4", 4, 0xed2c3e14u, launch_hopper<stmatrix_kernel>, 90},
      {"elect", 1, 0xd7eb9731u, launch_hopper<elect_kernel>, 90},
      {"setmaxnreg", 1, 0x6245c101u, launch_hopper<setmaxnreg_kernel, 384>, 90, 90, 384},
      wgmma_primitive<__half, 64, Major::k, Major::k>("wgmma_k_k", 0x91c09109u),
      wgmma_primitive<__nv_bfloat16, 32, Major::k, Major::k>("wgmma_k_k_bf16", 0xfcf20842u),
      wgmma_primitive<__half, 80, Major::k, Major::mn>("wgmma_k_mn", 0xd88b2e74u),
      wgmma_primitive<__half, 96, Major::mn, Major::k>("wgmma_mn_k", 0x7ff709afu),
      wgmma_primitive<__half, 64, Major::mn, Major::mn>("wgmma_mn_mn", 0x91c09109u),
      wgmma_primitive<__nv_bfloat16, 128, Major::mn, Major::mn>("wgmma_mn_mn_bf16", 0xa032077eu),
      wgmma_primitive<__half, 96, Major::k, Major::k, true>("wgmma_registers_k", 0x7ff709afu),
      wgmma_primitive<__half, 128, Major::k, Major::mn, true>("wgmma_registers_mn", 0xa032077eu),
      wgmma_primitive<__nv_bfloat16, 80, Major::k, Major::mn, true>("wgmma_registers_mn_bf16", 0xd88b2e74u),
      {"ring", 120, 0x7014ef0bu, launch_ring, 90, 90, 160},
  };
  return list;
}

}  // namespace flash
