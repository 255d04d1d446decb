// One product of a tensor core, S = Q K^T with Q [16, 16] and K [8, 16]: each lane of a warp loads its pairs of elements, gets four
// scores, and joins the three other lanes of its quad for the maximum of a row.
#include "common/machine/float16.cuh"
#include "common/machine/ptx.cuh"
#include "common/machine/warp.cuh"
#include "docs/lab/lab.hpp"

#include <algorithm>

namespace {

using namespace flash;
using namespace flash::lab;

constexpr int ROWS = 16, KEYS = 8, D = 16;

/// Q [ROWS, D] and K [KEYS, D] in fp16, two elements in each unsigned. Block: one warp.
__global__ void product_kernel(const unsigned* Q, const unsigned* K, Matrix<float> S, Vector<float> row_max) {
  const int lane = threadIdx.x, g = lane / 4, t = lane % 4;

  // Registers of A = Q: rows g and g + 8, columns 2t, 2t + 1 and the same plus 8. A row has D / 2 pairs.
  const unsigned a[4] = {Q[g * D / 2 + t], Q[(g + 8) * D / 2 + t], Q[g * D / 2 + t + 4], Q[(g + 8) * D / 2 + t + 4]};
  // Registers of B = K^T: column g, which is row g of K, and rows 2t, 2t + 1 and the same plus 8.
  const unsigned b[2] = {K[g * D / 2 + t], K[g * D / 2 + t + 4]};
  float c[4] = {};
  mma_m16n8k16_f16(c, a, b, c);

  // Registers of C = S: row g, columns 2t and 2t + 1; then row g + 8.
  for (int i = 0; i < 4; ++i) S(g + i / 2 * 8, 2 * t + i % 2) = c[i];

  // The maximum of row g: over this lane's two scores, then over the quad.
  float m = fmaxf(c[0], c[1]);
  for (int other = 1; other < 4; other *= 2) m = fmaxf(m, __shfl_xor_sync(ALL_LANES, m, other));
  if (t == 0) row_max(g) = m;
}

unsigned pair(int first, int second) {
  const auto bits = [](int x) { return unsigned{__half_as_ushort(__float2half_rn(static_cast<float>(x)))}; };
  return bits(first) | bits(second) << 16;
}

}  // namespace

int main() {
  Claims claims;
  constexpr int SCORES[KEYS] = {1, 2, 4, 0, 3, -1, 0, 2};  // of query 0
  const auto q = [&](int i, int k) { return i == 0 ? (k < KEYS ? SCORES[k] : 0) : (3 * i + 5 * k) % 7 - 3; };
  const auto key = [](int j, int k) { return j == k ? 1 : 0; };  // unit vectors: a query's scores are its first components
  std::array<unsigned, ROWS * D / 2> Q;
  std::array<unsigned, KEYS * D / 2> K;
  for (int i = 0; i < ROWS * D / 2; ++i) Q[static_cast<std::size_t>(i)] = pair(q(i / 8, i % 8 * 2), q(i / 8, i % 8 * 2 + 1));
  for (int i = 0; i < KEYS * D / 2; ++i)
    K[static_cast<std::size_t>(i)] = pair(key(i / 8, i % 8 * 2), key(i / 8, i % 8 * 2 + 1));
  Array S("S", ROWS, KEYS), row_max("row_max", 8, 1);
  launch("product", {dim3(1), dim3(32)}, product_kernel, Q.data(), K.data(), S.matrix(), row_max.vector());

  std::printf("the quad of row 0: what each lane holds of A = Q, B = K^T and C = S\n\n");
  std::printf("lane  a[0]: Q(0, 2t..)  b[0]: K(0, 2t..)  c[0], c[1]: S(0, 2t..)  c[2], c[3]: S(8, 2t..)\n");
  for (int t = 0; t < 4; ++t) {
    std::printf("%4d  %8d %7d  %8d %7d  %11.0f %9.0f  %11.0f %9.0f\n", t, q(0, 2 * t), q(0, 2 * t + 1), key(0, 2 * t),
                key(0, 2 * t + 1), S(0, 2 * t), S(0, 2 * t + 1), S(8, 2 * t), S(8, 2 * t + 1));
  }
  std::printf("\nits maximum, by two shuffles within the quad: %.0f\n", row_max(0, 0));

  for (int i = 0; i < ROWS; ++i) {
    for (int j = 0; j < KEYS; ++j) claims.check(S(i, j) == static_cast<float>(q(i, j)), "S = Q K^T");
  }
  for (int i = 0; i < 8; ++i) {
    int largest = q(i, 0);
    for (int j = 1; j < KEYS; ++j) largest = std::max(largest, q(i, j));
    claims.check(row_max(i, 0) == static_cast<float>(largest), "a quad knows the maximum of its row");
  }
  return claims.exit_code();
}
