// What an mma makes of every 16-bit number, and what tensor-core code does on a target without bf16 and cp.async.
#include "common/machine/isa/float16.hpp"
#include "common/machine/ptx.cuh"
#include "common/machine/test/zoo.hpp"

#include <array>
#include <cmath>

namespace flash {
namespace {

/// D(row, 0) = A(row, 0) * 1 for 16 patterns, first, first + 1, ...; A is zero elsewhere, and B's first row is 1.
template <bool Bf16>
__global__ void decode_in_mma(unsigned first, float* out) {
  const unsigned lane = threadIdx.x, one = Bf16 ? 0x3F80u : 0x3C00u, row = lane / 4;
  const bool left = lane % 4 == 0;
  const unsigned a[4] = {left ? first + row : 0, left ? first + row + 8 : 0, 0, 0}, b[2] = {left ? one : 0, 0};
  const float zero[4] = {};
  float d[4];
  if constexpr (Bf16) {
    mma_m16n8k16_bf16(d, a, b, zero);
  } else {
    mma_m16n8k16_f16(d, a, b, zero);
  }
  if (left) out[row] = d[0], out[row + 8] = d[2];
}

template <bool Bf16>
void check_every_pattern(float (*decode)(std::uint16_t)) {
  int wrong = 0;
  std::array<float, 16> got{};
  for (unsigned first = 0; first < 65536; first += 16) {
    launch("decode", {dim3(1), dim3(32), 0}, decode_in_mma<Bf16>, first, got.data());
    for (unsigned i = 0; i < 16; ++i) {
      const float expected = decode(static_cast<std::uint16_t>(first + i));
      wrong += std::isnan(expected) ? !std::isnan(got[i]) : got[i] != expected;
    }
  }
  CHECK(wrong == 0);
}

__global__ void bf16_product(float* out) {
  const unsigned a[4] = {}, b[2] = {};
  float d[4] = {};
  mma_m16n8k16_bf16(d, a, b, d);  // BUG bf16
  out[threadIdx.x] = d[0];
}
__global__ void fp16_product(float* out) {
  const unsigned a[4] = {}, b[2] = {};
  float d[4] = {};
  mma_m16n8k16_f16(d, a, b, d);
  out[threadIdx.x] = d[0];
}

/// Reads a copy that it has not waited for, if `wait` is false.
__global__ void copy(Tensor<const float> K, float* out, bool wait) {
  float* const tile = dynamic_shared<float>(64);
  cp_async_zfill<16>(tile, K.head(0, 0).address(0, 0), 8);
  cp_async_commit();
  if (wait) cp_async_wait<0>();
  out[0] = tile[1];
  out[1] = tile[2];
  cp_async_wait_all();
}

}  // namespace

TEST_CASE("mma: every fp16 and bf16 number") {
  check_every_pattern<false>(half_to_float);
  check_every_pattern<true>(bfloat16_to_float);
}

TEST_CASE("zoo: a target without bf16") {
  std::array<float, 32> out{};
  set_options({.target_sm = 75});
  CHECK_REPORT(report(32, 0, bf16_product, out.data()), "unsupported: ", "mma with bf16 needs sm_80, the target is sm_75 at ",
               BUG("bf16"));
  CHECK(report(32, 0, fp16_product, out.data()) == "");
  set_options({.target_sm = 80});
  CHECK(report(32, 0, bf16_product, out.data()) == "");
  set_options({});
}

TEST_CASE("zoo: a target without cp.async copies at once") {
  alignas(16) std::array<float, 4> values{1.0f, 2.0f, 3.0f, 4.0f};
  const TensorRef ref{values.data(), "K", Dtype::fp32, {1, 1, 1, 4}, {4, 4, 4, 1}};
  for (const int sm : {75, 80}) {
    for (const bool wait : {false, true}) {
      std::array<float, 2> out{};
      set_options({.target_sm = sm});
      CHECK(report(1, 256, copy, view<const float>(ref), out.data(), wait) == "");
      const bool landed = wait || sm == 75;
      CHECK((landed ? out[0] == 2.0f && out[1] == 0.0f : std::isnan(out[0]) && std::isnan(out[1])));
    }
  }
  set_options({});
}

}  // namespace flash
