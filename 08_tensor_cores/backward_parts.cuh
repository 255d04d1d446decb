// 08 Tensor cores, backward: what the kernels of both steps are made of.
//
// A block owns a tile of Bc keys and walks over tiles of Br queries. As in chapter 07 its warps form two halves, since the products come
// in pairs that share no operand, and here they work on different tiles: half 0 is one tile ahead.
//   half 0, tile i:     S^T = K Q^T,   P^T = e^(S^T - L)  -> shared memory,   dV += P^T dO
//   half 1, tile i-1:   dP^T = V dO^T, dS^T = P^T o (dP^T - D) -> in place of P^T,   dK += dS^T Q
// What half 0 leaves at i, half 1 finds at i+1: one barrier a tile orders it all, and while one half is busy with exponentials the other one
// keeps the tensor cores busy. Scores are transposed: a warp owns KEYS rows of them, so its accumulators of S^T become the A operand of
// P^T dO by packing, without a trip through memory.
//
// Fragments (common/device/fragments.hpp): c[m][n] is C [16, 8] at rows 16 m, columns 8 n of the warp's part of a product; f[m][k] is A [16, 16] at
// rows 16 m, columns 16 k. Addresses in shared memory are counted in bytes from its start.
#pragma once

#include "08_tensor_cores/parts.cuh"

#include <stdexcept>
#include <string_view>

namespace flash::tensor_cores {
namespace {

constexpr int STAGES = 3;       // tiles of Q and dO at a time: the two that the halves work on, and one on its way
constexpr int ROW_BLOCK = 128;  // every Br divides it: L, D and the sum of dQ have whole tiles of rows

/// The two numbers that pack() has put into a register.
template <class T>
__device__ float2 unpack(unsigned pair) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  } else {
    return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(pair));
  }
}

// ---- Tiles in shared memory -------------------------------------------------------------------------------------------------------------
//
// Rows of Width numbers without padding; chunks of 8 numbers are swizzled: chunk c of row r lies in place c ^ swizzle of its row.

/// Chunks that change places with each other: a row of 128 bytes begins where the one before began and needs 8 places; two rows of 64 (or
/// 192) bytes lie side by side in the banks, 4 rows of 32.
template <int Width>
constexpr int PLACES = Width % 64 == 0   ? 8
                       : Width % 32 == 0 ? 4
                                         : 2;

template <int Width>
__device__ int chunk_address(unsigned row, unsigned chunk) {
  const unsigned swizzle = row / (8 / PLACES<Width>) % PLACES<Width>;
  return static_cast<int>(row * 2 * Width + (chunk ^ swizzle) * 16);
}

/// `address` lies in the first chunk of a row, or, if `chunks` is even, in the second one: the address as many chunks to the right. Counted in
/// bytes; with unit = 4 in words.
template <int Width>
__device__ int to_the_right(int address, int chunks, int unit = 16) {
  constexpr int G = PLACES<Width>;
  return (address ^ chunks % G * unit) + chunks / G * G * unit;
}

/// The chunk of the first 16 x 16 numbers of a tile that this lane gives to ldmatrix_x4, if its four matrices come one below the other first:
/// an A operand; with _trans two B operands side by side.
template <int Width>
__device__ int down_first(unsigned lane) {
  return chunk_address<Width>(lane % 16, lane / 16);
}

/// The same if the four matrices come side by side first: two B operands of a transposed tile; with _trans a transposed A operand.
template <int Width>
__device__ int right_first(unsigned lane) {
  return chunk_address<Width>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
}

// Shared memory that a block can have. A kernel that needs more than any GPU of an architecture has is left empty there: it is never started, and
// compiling it for that architecture would be in vain.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int MOST_SHARED_BYTES = 64 << 10;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int MOST_SHARED_BYTES = 163 << 10;
#else
constexpr int MOST_SHARED_BYTES = 227 << 10;
#endif

/// The tile sizes of one compiled kernel, and who holds what. Width: d, rounded up.
template <class T_, int Width_, int Br_, int Bc_, int Warps>
struct Shape {
  using T = T_;
  static constexpr int Width = Width_, Br = Br_, Bc = Bc_, THREADS = Warps * WARP, HALF = Warps / 2;
  static constexpr int KEYS = Bc / HALF;  // of a warp
  static constexpr int MT = KEYS / 16, NT = Br / 8, KT = Br / 16, DT = Width / 8;
  static constexpr int ROW = 2 * Width, Q_BYTES = Br * ROW, K_BYTES = Bc * ROW, P_BYTES = 2 * Br * Bc, LD_BYTES = 8 * Br;
  // Addresses. P and dS: [Bc, Br], transposed as they are computed.
  static constexpr int K = 0, V = K + K_BYTES, Q = V + K_BYTES, dO = Q + STAGES * Q_BYTES, P = dO + STAGES * Q_BYTES,
                       LD = P + STAGES * P_BYTES, SHARED_BYTES = LD + STAGES * LD_BYTES;

  static_assert(MT >= 1 && MT * 16 * HALF == Bc, "the warps of a half share the keys in sixteens");
  static_assert(Br % 16 == 0 && ROW_BLOCK % Br == 0, "tiles of queries fill the padded L, D and sum of dQ");
};

/// What a thread works on.
template <class C>
struct Role {
  int lane = threadIdx.x % WARP;
  int half = threadIdx.x / WARP / C::HALF;
  int warp = threadIdx.x / WARP % C::HALF;  // of the half
  // Addresses within a tile of rows of Width numbers, which this lane gives to ldmatrix.
  int down = opaque(down_first<C::Width>(lane));
  int right = opaque(right_first<C::Width>(lane));

  __device__ int key(int m, int e) const { return warp * C::KEYS + 16 * m + lane / 4 + e / 2 * 8; }  // row of c[m][.][e]
  __device__ int query(int n, int e) const { return 8 * n + lane % 4 * 2 + e % 2; }                  // column of c[.][n][e]
  __device__ int col(int n) const { return query(n, 0); }                                            // the same of a gradient
};

/// Which tile of keys of which head a block works on. Blocks start in the order of their numbers: heads in groups that share L2; within a group
/// the first keys, which under a causal mask most queries see, start first.
template <class C>
struct Work {
  int b, h_kv, col0;

  __device__ Work(const Problem& problem, int heads_at_once, int block) {
    const int Tc = (problem.Nk + C::Bc - 1) / C::Bc, heads = problem.B * problem.Hkv;
    const int group = block / (heads_at_once * Tc) * heads_at_once, in_group = block % (heads_at_once * Tc);
    const int size = min(heads_at_once, heads - group);  // the last group may be smaller
    const int head = group + in_group % size;
    b = head / problem.Hkv;
    h_kv = head % problem.Hkv;
    col0 = in_group / size * C::Bc;
  }
};

// ---- Copies -----------------------------------------------------------------------------------------------------------------------------

/// Zeros in the columns beyond the last one of M of `rows` rows from `to` on. Tiles keep them, since load_tile() does not touch them.
template <class C>
__device__ void clear_columns(unsigned char* shared, int to, int rows, int cols) {
  const int chunks = C::Width / 8, first = cols / 8, missing = chunks - first;
  for (int e = threadIdx.x; e < rows * missing; e += C::THREADS) {
    const int at = to + chunk_address<C::Width>(e / missing, first + e % missing);
    *reinterpret_cast<uint4*>(shared + at) = make_uint4(0, 0, 0, 0);
  }
}

/// Starts copying rows row0, row0 + 1, ... of M to the tile at `to`; zeros stand beyond its last row. A thread stays in its chunk of the row
/// and, where it can, goes down in steps of a multiple of 8 rows: then its place within the swizzle stays the same.
template <class C, int Rows>
__device__ void load_tile(unsigned char* shared, int to, const Matrix<const typename C::T>& M, int row0) {
  constexpr int chunks = C::Width / 8, fit = C::THREADS / chunks, at_once = fit < 8 ? fit : fit / 8 * 8;
  constexpr int steps = (Rows + at_once - 1) / at_once;
  const int chunk = threadIdx.x % chunks, first = threadIdx.x / chunks, col = opaque(8 * chunk);
  if (chunks * at_once != C::THREADS && first >= at_once) return;  // Width 96: some threads have nothing to copy
  if (col >= M.cols) return;
  if (row0 + Rows <= M.rows) {  // the usual case, without further questions
    const int place = to + chunk_address<C::Width>(first, chunk);
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const int row = first + step * at_once;
      if (Rows % at_once != 0 && row >= Rows) break;
      const int there = at_once % 8 == 0 ? place + step * at_once * C::ROW : to + chunk_address<C::Width>(row, chunk);
      cp_async<16>(shared + there, M.address(row0 + row, col));
    }
    return;
  }
#pragma unroll 1
  for (int row = first; row < Rows; row += at_once) {
    const bool exists = row0 + row < M.rows;
    cp_async_zfill<16>(shared + to + chunk_address<C::Width>(row, chunk), M.address(exists ? row0 + row : 0, col),
                       exists ? 16 : 0);
  }
}

/// Starts copying L and D of the tile, two numbers a query.
template <class C>
__device__ void load_LD(unsigned char* shared, int to, const Matrix<const float>& LD, int row0) {
  if (static_cast<int>(threadIdx.x) < C::Br / 2) {
    cp_async<16>(shared + to + 16 * threadIdx.x, LD.address(0, 2 * row0 + 4 * threadIdx.x));
  }
}

// ---- Products. Fragments are read from shared memory one step before they are used -----------------------------------------------------------

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

/// factor * y, the warp's KEYS rows of a gradient from row0 on. Accumulators would leave as 4 bytes a lane, half a sector in each of 8 rows;
/// through the KEYS rows of a tile at `place`, which nobody else uses any more, they leave as chunks of 16.
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

/// The tensors of the pass. LD: L and D side by side, [B, H, 1, 2 * padded Nq].
template <class T>
struct Operands {
  Tensor<const T> Q, K, V, dO;
  Tensor<T> dQ, dK, dV;
  Tensor<const float> LD;
  Bias bias;
};

constexpr int PREPARE_THREADS = 256;

/// D = rowsum(dO o O) and L, side by side; a query that sees no key, or that only pads the last tile, gets L = inf: its P is 0. If there is
/// a sum of dQ, it is cleared.  Width / 8 lanes, rounded up to a power of two, share a query.  Grid: groups of queries * B*H.
template <class T, int Width>
__global__ void __launch_bounds__(PREPARE_THREADS)
    prepare_kernel(Problem problem, Tensor<const T> O_all, Tensor<const T> dO_all, Tensor<const float> L_all,
                   Tensor<float> LD_all, Tensor<float> sum_all, bool clear_sum, bool wide) {
  constexpr int CHUNKS = Width / 8, LANES = CHUNKS == 12 ? 16 : CHUNKS, ROWS = PREPARE_THREADS / LANES;
  const int heads = problem.B * problem.H;
  const int b = blockIdx.x % heads / problem.H, h = blockIdx.x % heads % problem.H;
  const int i = blockIdx.x / heads * ROWS + threadIdx.x / LANES, chunk = threadIdx.x % LANES, col = 8 * chunk;
  float D = 0.0f;
  if (i < problem.Nq && col < problem.d) {
    const Matrix<const T> O = O_all.head(b, h), dO = dO_all.head(b, h);
    if (wide) {
      const uint4 x = O.template as<uint4>(i, col), y = dO.template as<uint4>(i, col);
      const unsigned x_words[4] = {x.x, x.y, x.z, x.w}, y_words[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const float2 x2 = unpack<T>(x_words[w]), y2 = unpack<T>(y_words[w]);
        D += x2.x * y2.x + x2.y * y2.y;
      }
    } else {
      for (int c = col; c < min(col + 8, problem.d); ++c) D += static_cast<float>(O(i, c)) * static_cast<float>(dO(i, c));
    }
  }
#pragma unroll
  for (int distance = LANES / 2; distance > 0; distance /= 2) D += __shfl_xor_sync(ALL_LANES, D, distance);
  if (chunk == 0) {
    const float L = i < problem.Nq ? L_all.head_vector(b, h)(i) : -INFINITY;
    LD_all.head(b, h).template as<float2>(0, 2 * i) = make_float2(L == -INFINITY ? INFINITY : L, D);
  }
  if (clear_sum) {  // its order does not matter here: the block clears as many numbers as its rows have
    const Matrix<float> sum = sum_all.head(b, h);
    const int first = blockIdx.x / heads * ROWS * Width;
    for (int e = 4 * threadIdx.x; e < ROWS * Width; e += 4 * PREPARE_THREADS) {
      store4(sum.address(0, first + e), make_float4(0.0f, 0.0f, 0.0f, 0.0f));
    }
  }
}

/// `t`, or the padded copy of it that the forward pass has left.
TensorRef as_in_forward(const Attention& a, const TensorRef& t, const char* name) {
  return rows_are_aligned(a.problem) ? t : a.workspace(name);
}

template <class T>
Operands<T> operands_of(const Attention& a) {
  return {view<const T>(as_in_forward(a, a.Q, "Q_padded")),
          view<const T>(as_in_forward(a, a.K, "K_padded")),
          view<const T>(as_in_forward(a, a.V, "V_padded")),
          view<const T>(aligned<T>(a, a.dO, "dO_padded")),
          view<T>(a.dQ),
          view<T>(a.dK),
          view<T>(a.dV),
          view<const float>(a.workspace("LD")),
          bias_of(a)};
}

/// Queries, rounded up to whole tiles of any size.
int padded_queries(const Problem& p) { return static_cast<int>(blocks_for(p.Nq, ROW_BLOCK)) * ROW_BLOCK; }

// What the heads that blocks work on at a time need should stay in L2: half of the 50 MB of an H100 or H200.
constexpr std::int64_t L2_BYTES = std::int64_t{24} << 20;

int heads_in_L2(int heads, std::int64_t bytes_of_head) {
  return static_cast<int>(std::clamp<std::int64_t>(L2_BYTES / bytes_of_head, 1, heads));
}

/// L and D, before everything else.
template <class T, int Width>
void launch_prepare(const Attention& a, const TensorRef* sum) {
  const Problem& p = a.problem;
  constexpr int lanes = Width == 96 ? 16 : Width / 8;
  const TensorRef& LD = a.workspace("LD");
  launch(
      "prepare",
      {dim3(blocks_for(padded_queries(p), PREPARE_THREADS / lanes) * static_cast<unsigned>(p.B * p.H)), dim3(PREPARE_THREADS)},
      prepare_kernel<T, Width>, p, view<const T>(a.O), view<const T>(a.dO), view<const float>(a.L), view<float>(LD),
      view<float>(sum == nullptr ? LD : *sum), sum != nullptr, rows_are_aligned(p));
}

/// Step 4, whose forward pass the backward steps run first; the program has registered it.
const Variant& forward_step() {
#ifdef __CUDACC__
  constexpr Backend backend = Backend::gpu;
#else
  constexpr Backend backend = Backend::cpu;
#endif
  for (const Variant& v : variants(backend)) {
    if (std::string_view(v.name) == "tuned") return v;
  }
  throw std::logic_error("the backward steps of stage 08 need its forward step \"tuned\"");
}

void forward(const Attention& a) { forward_step().forward(a); }

/// The tiles for a problem on a device: those whose shared memory the device has.
std::vector<TileChoice> tiles_of(const std::vector<Compiled>& kernels, const Problem& p, Pass pass,
                                 const DeviceLimits& limits) {
  if (pass == Pass::forward) return forward_step().tiles(p, pass, limits);
  std::vector<TileChoice> choices;
  for (const Compiled& k : kernels) {
    if (k.width == width_of(p.d) && k.shared_bytes <= limits.shared_bytes) {
      choices.push_back({k.tiles, k.threads, k.shared_bytes, k.why});
    }
  }
  return choices;
}

void start_one_of(const std::vector<Compiled>& kernels, const Attention& a) {
  for (const Compiled& k : kernels) {
    if (k.width == width_of(a.problem.d) && k.tiles == a.tiles) {
      return (a.problem.dtype == Dtype::fp16 ? k.start_fp16 : k.start_bf16)(a);
    }
  }
}

/// What the forward pass needs, and for the backward pass the pairs L and D, and a padded copy of dO where rows are not aligned.
std::vector<WorkspaceSpec> backward_workspace(const Problem& p, Pass pass) {
  std::vector<WorkspaceSpec> list = forward_workspace(p, pass);
  if (pass == Pass::forward) return list;
  list.push_back({"LD", {p.B, p.H, 1, 2 * std::int64_t{padded_queries(p)}}});
  if (!rows_are_aligned(p)) list.push_back(padded_copy("dO_padded", p, p.H, p.Nq));
  return list;
}

}  // namespace
}  // namespace flash::tensor_cores
