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
  return {name, hash, N / 2, launch_hopper<wgmma_kernel<T, N, A, B, FromRegisters>, 128>, 90, 90, 128};
}

}  // namespace

const std::vector<Primitive>& PRIMITIVES_OF() {
  static const std::vector<Primitive> list = {
      {"shuffles", 0x36f376abu, 8, launch_one<shuffles_kernel>},
      {"wide_shuffle", 0xf872b6adu, 2, launch_one<wide_shuffle_kernel>},
      {"partial_masks", 0x1e54124cu, 1, launch_one<partial_masks_kernel>},
      {"votes", 0xe32ccaf0u, 7, launch_one<votes_kernel>},
      {"reductions", 0xb3ca4785u, 8, launch_one<reductions_kernel>, 80},
      {"barriers", 0xe1b771fdu, 6, launch_one<barriers_kernel>},
      {"atomics", 0x5502fac5u, 8, launch_one<atomics_kernel>},
      {"acquire_release", 0xcb09d715u, 1, launch_one<acquire_release_kernel>},
      {"bits", 0x715930f4u, 8, launch_one<bits_kernel>},
      {"float16", 0xbb2903abu, 6, launch_one<float16_kernel>},
      {"ldmatrix_x1", 0xfe1a7a45u, 1, launch_one<ldmatrix_kernel<1, false>>},
      {"ldmatrix_x2", 0x4ebe2bc5u, 2, launch_one<ldmatrix_kernel<2, false>>},
      {"ldmatrix_x4", 0x77b605c5u, 4, launch_one<ldmatrix_kernel<4, false>>},
      {"ldmatrix_x4_trans", 0x0c05f4c5u, 4, launch_one<ldmatrix_kernel<4, true>>},
      {"mma_m16n8k8_f16", 0x7c60a1c5u, 4, launch_one<mma_kernel<false, 8>>},
      {"mma_m16n8k16_f16", 0xbad2a1c5u, 4, launch_one<mma_kernel<false, 16>>},
      {"mma_m16n8k16_bf16", 0xbad2a1c5u, 4, launch_one<mma_kernel<true, 16>>, 80},
      {"exp2_approx", 0x3f5ec645u, 6, launch_one<exp2_approx_kernel>},
      {"tanh_approx", 0x890f58c5u, 6, launch_one<tanh_approx_kernel>},
      {"atomic_add4", 0xd54ea1c5u, 4, launch_one<atomic_add4_kernel>},
      {"cp_async", 0x15391052u, 13, launch_one<cp_async_kernel>},
      {"tma_load", 0x63b2ab9bu, 16, launch_tma_load, 90},
      {"tma_store", 0x6d8a7a58u, 5, launch_tma_store, 90},
      {"bulk", 0xb726a1c5u, 4, launch_hopper<bulk_kernel>, 90},
      {"mbarrier_ring", 0xb58c0a28u, 1, launch_hopper<mbarrier_ring_kernel>, 90},
      {"named_barrier", 0xb58c0a28u, 1, launch_hopper<named_barrier_kernel>},
      {"stmatrix_x4", 0x4a43f4f7u, 4, launch_hopper<stmatrix_kernel>, 90},
      {"elect", 0x9d963405u, 1, launch_hopper<elect_kernel>, 90},
      {"setmaxnreg", 0xc9e07304u, 1, launch_hopper<setmaxnreg_kernel, 384>, 90, 90, 384},
      wgmma_primitive<__half, 64, Major::k, Major::k>("wgmma_k_k", 0xa491ddc5u),
      wgmma_primitive<__nv_bfloat16, 32, Major::k, Major::k>("wgmma_k_k_bf16", 0xfa1c1dc5u),
      wgmma_primitive<__half, 80, Major::k, Major::mn>("wgmma_k_mn", 0xde98cdc5u),
      wgmma_primitive<__half, 96, Major::mn, Major::k>("wgmma_mn_k", 0x82571dc5u),
      wgmma_primitive<__half, 64, Major::mn, Major::mn>("wgmma_mn_mn", 0xa491ddc5u),
      wgmma_primitive<__nv_bfloat16, 128, Major::mn, Major::mn>("wgmma_mn_mn_bf16", 0xc5645dc5u),
      wgmma_primitive<__half, 96, Major::k, Major::k, true>("wgmma_registers_k", 0x82571dc5u),
      wgmma_primitive<__half, 128, Major::k, Major::mn, true>("wgmma_registers_mn", 0xc5645dc5u),
      wgmma_primitive<__nv_bfloat16, 80, Major::k, Major::mn, true>("wgmma_registers_mn_bf16", 0xde98cdc5u),
      {"ring", 0x5abe7cc5u, 120, launch_ring, 90, 90, 160},
  };
  return list;
}

}  // namespace flash
