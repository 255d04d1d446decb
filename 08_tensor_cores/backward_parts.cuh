// 08 Tensor cores, backward: what the kernels of both steps are made of.
//
// A block owns a tile of Bc keys and walks over tiles of Br queries. As in chapter 07 its warps form two halves, since the products come
// in pairs that share no operand, and here they work on different tiles: half 0 is one tile ahead.
//   half 0, tile i:     S^T = K Q^T,   P^T = e^(S^T - L)  -> shared memory,   dV += P^T dO
//   half 1, tile i-1:   dP^T = V dO^T, dS^T = P^T o (dP^T - D) -> in place of P^T,   dK += dS^T Q
// What half 0 leaves at i, half 1 finds at i+1: one barrier a tile orders it all, and while one half is busy with exponentials the
// other one keeps the tensor cores busy. Scores are transposed: a warp owns KEYS rows of them, so its accumulators of S^T become the A
// operand of P^T dO by packing, without a trip through memory.
//
// Fragments (common/device/fragments.hpp): c[m][n] is C [16, 8] at rows 16 m, columns 8 n of the warp's part of a product; f[m][k] is A
// [16, 16] at rows 16 m, columns 16 k. Addresses in shared memory are counted in bytes from its start.
#pragma once

#include "08_tensor_cores/backward_tiles.cuh"

namespace flash::tensor_cores {
namespace {

/// The two numbers that pack() has put into a register.
template <class T>
__device__ float2 unpack(unsigned pair) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  } else {
    return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(pair));
  }
}

// ---- Products. Fragments are read from shared memory one step before they are used ------------------------------------------------

/// (8.11), (8.12)  x = A B^T   [KEYS, Width] x [Width, Br]: S^T from K and Q, or dP^T from V and dO. `A`: address of the warp's rows.
template <class C>
__device__ void product_of_rows(float (&x)[C::MT][C::NT][4], const unsigned char* shared, int A, int B, const Role<C>& at) {
#pragma unroll
  for (int m = 0; m < C::MT; ++m) {
#pragma unroll
    for (int n = 0; n < C::NT; ++n) x[m][n][0] = x[m][n][1] = x[m][n][2] = x[m][n][3] = 0.0f;
  }
  constexpr int PAIRS = C::NT / 2, KS = C::Width / 16;  // a step: 16 of the inner dimension, 16 queries
  A = opaque(A + at.down);
  B = opaque(B + at.right);
  unsigned a[2][C::MT][4], b[2][4];
#pragma unroll
  for (int m = 0; m < C::MT; ++m) ldmatrix_x4(a[0][m], shared + A + m * 16 * C::ROW);
  ldmatrix_x4(b[0], shared + B);
#pragma unroll
  for (int k = 0; k < KS; ++k) {
#pragma unroll
    for (int n = 0; n < PAIRS; ++n) {
      const int next = k * PAIRS + n + 1;
      if (n == 0 && k + 1 < KS) {
#pragma unroll
        for (int m = 0; m < C::MT; ++m) {
          ldmatrix_x4(a[(k + 1) % 2][m], shared + to_the_right<C::Width>(A, 2 * (k + 1)) + m * 16 * C::ROW);
        }
      }
      if (next < KS * PAIRS) {
        ldmatrix_x4(b[next % 2], shared + to_the_right<C::Width>(B, 2 * (next / PAIRS)) + next % PAIRS * 16 * C::ROW);
      }
#pragma unroll
      for (int m = 0; m < C::MT; ++m) {
        add_mma<typename C::T>(x[m][2 * n], a[k % 2][m], b[(next + 1) % 2][0], b[(next + 1) % 2][1]);
        add_mma<typename C::T>(x[m][2 * n + 1], a[k % 2][m], b[(next + 1) % 2][2], b[(next + 1) % 2][3]);
      }
    }
  }
}

/// (8.14), (8.15)  y += f B   [KEYS, Br] x [Br, Width]: dV from P^T and dO, or dK from dS^T and Q.
template <class C>
__device__ void add_product(float (&y)[C::MT][C::DT][4], const unsigned (&f)[C::MT][C::KT][4], const unsigned char* shared,
                            int B, const Role<C>& at) {
  constexpr int PAIRS = C::DT / 2, STEPS = C::KT * PAIRS;  // a step: 16 queries, 16 columns
  B = opaque(B + at.down);
  unsigned b[2][4];
  ldmatrix_x4_trans(b[0], shared + B);
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    const int k = step / PAIRS, n = 2 * (step % PAIRS), next = step + 1;
    if (next < STEPS) {
      ldmatrix_x4_trans(b[next % 2], shared + to_the_right<C::Width>(B, 2 * (next % PAIRS)) + next / PAIRS * 16 * C::ROW);
    }
#pragma unroll
    for (int m = 0; m < C::MT; ++m) {
      add_mma<typename C::T>(y[m][n], f[m][k], b[step % 2][0], b[step % 2][1]);
      add_mma<typename C::T>(y[m][n + 1], f[m][k], b[step % 2][2], b[step % 2][3]);
    }
  }
}

// ---- What happens to scores -------------------------------------------------------------------------------------------------------------

/// Keys that a query does not see, or that do not exist, score `least`.
template <class C>
__device__ void mask_scores(float (&s)[C::MT][C::NT][4], const Problem& problem, int row0, int col0, float least,
                            const Role<C>& at) {
#pragma unroll
  for (int n = 0; n < C::NT; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int visible = problem.visible_keys(row0 + at.query(n, e)) - col0 - at.key(0, 0);
#pragma unroll
      for (int m = 0; m < C::MT; ++m) {
        if (16 * m >= visible) s[m][n][e] = least;
        if (16 * m + 8 >= visible) s[m][n][e + 2] = least;
      }
    }
  }
}

/// Turns s = Q K^T into scale s + bias - L. `LD`: pairs L, D.
template <class C>
__device__ void find_exponents(float (&s)[C::MT][C::NT][4], const Problem& problem, const Bias& bias,
                               const Matrix<const float>& values, int row0, int col0, const SharedMatrix<const float>& LD,
                               const Role<C>& at) {
  const float slope = bias.kind == BiasKind::alibi ? values(0, 0) : 0.0f;
#pragma unroll
  for (int n = 0; n < C::NT; ++n) {
    const float4 two = LD.as<float4>(0, 2 * at.query(n, 0));
#pragma unroll
    for (int m = 0; m < C::MT; ++m) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int i = row0 + at.query(n, e), j = col0 + at.key(m, e);
        float& x = s[m][n][e];
        x *= problem.scale;
        if (bias.kind == BiasKind::alibi) {
          x -= slope * fabsf(static_cast<float>(i + bias.diagonal - j));
        } else if (bias.kind != BiasKind::none && i < problem.Nq && j < problem.Nk) {
          x += values(i, j);
        }
        x -= e % 2 == 0 ? two.x : two.z;
      }
    }
    asm volatile("" ::: "memory");  // two queries at a time: for the values of all at once there are not enough registers
  }
}

/// (8.11)  P = e^(scale s - L), in 16 bits, as A operands; P = e^s if s is the exponent already.
template <class C, bool IsExponent>
__device__ void exponentiate(unsigned (&p)[C::MT][C::KT][4], const float (&s)[C::MT][C::NT][4], float scale,
                             const SharedMatrix<const float>& LD, const Role<C>& at) {
  const float factor = IsExponent ? LOG2_E : scale * LOG2_E;
#pragma unroll
  for (int n = 0; n < C::NT; ++n) {
    const float4 two = LD.as<float4>(0, 2 * at.query(n, 0));
    const float left = IsExponent ? 0.0f : LOG2_E * two.x, right = IsExponent ? 0.0f : LOG2_E * two.z;
#pragma unroll
    for (int m = 0; m < C::MT; ++m) {
      const float(&c)[4] = s[m][n];
      unsigned* const pairs = &p[m][n / 2][n % 2 * 2];
      pairs[0] = pack<typename C::T>(exp2_approx(factor * c[0] - left), exp2_approx(factor * c[1] - right));
      pairs[1] = pack<typename C::T>(exp2_approx(factor * c[2] - left), exp2_approx(factor * c[3] - right));
    }
  }
}

/// The words of fragments (m, k) of a warp's part of P, in the order of lanes: 16 bytes each, without bank conflicts.
template <class C>
__device__ int fragment_word(int m, int k, int lane) {
  return ((m * C::KT + k) * WARP + lane) * 4;
}

template <class C>
__device__ void store_fragments(const SharedMatrix<unsigned>& words, const unsigned (&p)[C::MT][C::KT][4], int lane) {
#pragma unroll
  for (int m = 0; m < C::MT; ++m) {
#pragma unroll
    for (int k = 0; k < C::KT; ++k) {
      words.as<uint4>(0, fragment_word<C>(m, k, lane)) = make_uint4(p[m][k][0], p[m][k][1], p[m][k][2], p[m][k][3]);
    }
  }
}

/// (8.13)  dS = P o (dP - D), in 16 bits, as A operands; P from `words`, where the same lane of half 0 has put it.
template <class C>
__device__ void score_gradients(unsigned (&ds)[C::MT][C::KT][4], const float (&dp)[C::MT][C::NT][4],
                                const SharedMatrix<unsigned>& words, const SharedMatrix<const float>& LD, const Role<C>& at) {
  using T = typename C::T;
#pragma unroll
  for (int k = 0; k < C::KT; ++k) {
    const float4 left = LD.as<float4>(0, 2 * at.query(2 * k, 0)), right = LD.as<float4>(0, 2 * at.query(2 * k + 1, 0));
#pragma unroll
    for (int m = 0; m < C::MT; ++m) {
      const uint4 p = words.as<uint4>(0, fragment_word<C>(m, k, at.lane));
      const float2 p0 = unpack<T>(p.x), p1 = unpack<T>(p.y), p2 = unpack<T>(p.z), p3 = unpack<T>(p.w);
      const float(&c)[4] = dp[m][2 * k], (&d)[4] = dp[m][2 * k + 1];
      ds[m][k][0] = pack<T>(p0.x * (c[0] - left.y), p0.y * (c[1] - left.w));
      ds[m][k][1] = pack<T>(p1.x * (c[2] - left.y), p1.y * (c[3] - left.w));
      ds[m][k][2] = pack<T>(p2.x * (d[0] - right.y), p2.y * (d[1] - right.w));
      ds[m][k][3] = pack<T>(p3.x * (d[2] - right.y), p3.y * (d[3] - right.w));
    }
  }
}

/// dS^T as rows of Br numbers for ldmatrix, where P was.
template <class C>
__device__ void store_dS(const SharedMatrix<unsigned>& words, const unsigned (&ds)[C::MT][C::KT][4], int lane) {
  const int first = opaque(chunk_address<C::Br>(lane / 4, 0) / 4 + lane % 4);  // in words
#pragma unroll
  for (int m = 0; m < C::MT; ++m) {
#pragma unroll
    for (int k = 0; k < C::KT; ++k) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        // Register r: keys of the upper or lower 8, queries of the left or right 8.
        words(0, to_the_right<C::Br>(first, 2 * k + r / 2, 4) + (16 * m + r % 2 * 8) * (C::Br / 2)) = ds[m][k][r];
      }
    }
  }
}

// ---- Results ----------------------------------------------------------------------------------------------------------------------------

/// factor * y, the warp's KEYS rows of a gradient from row0 on. Accumulators would leave as 4 bytes a lane, half a sector in each of 8
/// rows; through the KEYS rows of a tile at `place`, which nobody else uses any more, they leave as chunks of 16.
template <class C>
__device__ void write_gradient(const Matrix<typename C::T>& G, int row0, float factor, const float (&y)[C::MT][C::DT][4],
                               unsigned char* shared, int place, int lane) {
  using T = typename C::T;
  const SharedMatrix<unsigned> words{reinterpret_cast<unsigned*>(shared + place), 1, C::KEYS * C::Width / 2,
                                     C::KEYS * C::Width / 2};
#pragma unroll
  for (int m = 0; m < C::MT; ++m) {
#pragma unroll
    for (int n = 0; n < C::DT; ++n) {
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        words(0, chunk_address<C::Width>(16 * m + 4 * e + lane / 4, n) / 4 + lane % 4) =
            pack<T>(factor * y[m][n][e], factor * y[m][n][e + 1]);
      }
    }
  }
  __syncwarp();  // read after write: a lane sends what others have written
  const int rows = min(C::KEYS, G.rows - row0);
  if (G.cols % 8 == 0) {  // then rows begin at multiples of 16 bytes (rows_are_aligned)
    for (int index = lane; index < rows * (C::Width / 8); index += WARP) {
      const int row = index / (C::Width / 8), chunk = index % (C::Width / 8);
      if (8 * chunk >= G.cols) continue;
      const uint4 numbers = words.as<uint4>(0, chunk_address<C::Width>(row, chunk) / 4);
      G.template as<uint4>(row0 + row, 8 * chunk) = numbers;
    }
  } else {
    for (int row = 0; row < rows; ++row) {
      for (int col = lane; col < G.cols; col += WARP) {
        const T number = *reinterpret_cast<const T*>(shared + place + chunk_address<C::Width>(row, col / 8) + 2 * (col % 8));
        G(row0 + row, col) = number;
      }
    }
  }
}

}  // namespace
}  // namespace flash::tensor_cores
