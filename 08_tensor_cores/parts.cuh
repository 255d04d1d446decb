// 08 Tensor cores: what all steps share, and what is not the idea of any of them.
//
// T is __half or __nv_bfloat16. Products take operands of T and sum in fp32. A warp owns 16 TM rows of its tile; what it holds of a
// matrix are fragments of 16 x 8 (accumulators) or 16 x 16 (operands), whose elements the lanes share as common/device/fragments.hpp
// says: with g = lane / 4 and t = lane % 4, accumulator [4] of a lane is (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1).
#pragma once

#include "common/device/device.cuh"
#include "common/device/float16.cuh"
#include "common/device/fragments.hpp"
#include "common/device/ptx.cuh"
#include "common/device/warp.cuh"

#include <algorithm>
#include <type_traits>

namespace flash::tensor_cores {
namespace {

constexpr float LOG2_E = 1.44269504f;

// ---- 16-bit numbers -------------------------------------------------------------------------------------------------------------

/// Two fp32 numbers, rounded to T, in one register.
template <class T>
__device__ inline unsigned pack(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    return pack_f16(low, high);
  } else {
    return pack_bf16(low, high);
  }
}

/// C += A B   [16, 16] x [16, 8], B as its two registers.
template <class T>
__device__ inline void add_mma(float (&C)[4], const unsigned (&A)[4], unsigned B0, unsigned B1) {
  if constexpr (std::is_same_v<T, __half>) {
    mma_m16n8k16_f16(C, A, {B0, B1}, C);
  } else {
    mma_m16n8k16_bf16(C, A, {B0, B1}, C);
  }
}

/// d rounded up to whole chunks of 16 bytes: 8 numbers.
constexpr int whole_chunks(int d) { return (d + 7) / 8 * 8; }

// ---- Who holds what -------------------------------------------------------------------------------------------------------------

/// Where a thread stands in a product whose rows are dealt out to warps, 16 TM to each.
template <int TM>
struct Place {
  int lane = threadIdx.x % WARP;
  int warp_row = threadIdx.x / WARP * 16 * TM;  // first row of the warp

  /// Row of accumulators [.][i][.][2 half] and [2 half + 1], relative to the tile; their columns are 8 n + col() and one more.
  __device__ int row(int i, int half) const { return warp_row + 16 * i + fragment::c_row(lane, 2 * half); }
  __device__ int col() const { return fragment::c_col(lane, 0); }
};

// ---- Tiles ----------------------------------------------------------------------------------------------------------------------

/// Where a chunk lies in its row. Lanes that read the same chunk of 8 rows meet all banks once (docs/swizzles.md).
template <int Width>
struct Swizzle {
  __device__ int operator()(int row, int col) const { return swizzled_col(Width, row, col); }
};

/// One thread's part in copying tiles of Rows x Width numbers from rows of a matrix to shared memory, a chunk of 16 bytes at a time. The
/// matrix's rows begin at multiples of 16 bytes; zeros stand beyond its last row and column. A thread stays in its column, and goes down
/// in steps of 8 rows, at which swizzles repeat, so that all of its addresses differ by constants.
template <class T, int Threads, int Rows, int Width>
struct Copier {
  static constexpr int CHUNKS = Width / 8;
  static constexpr int AT_ONCE = Threads / CHUNKS >= 8 ? Threads / CHUNKS / 8 * 8 : Threads / CHUNKS;
  static constexpr int STEPS = (Rows + AT_ONCE - 1) / AT_ONCE;
  static constexpr bool SOME_IDLE = Threads != AT_ONCE * CHUNKS;  // Width 96: some threads have nothing to copy
  static_assert(Rows % AT_ONCE == 0, "the last step is a whole one");

  Matrix<const T> from;  // begins at the thread's row of the next tile

  /// To begin with the tile at row0.
  __device__ Copier(const Matrix<const T>& M, int row0) : from(M.below(row0 + static_cast<int>(threadIdx.x) / CHUNKS)) {}

  /// Starts the copy of a tile, and goes on to the one that begins `next` rows further down. place(row, col): the column of the tile's row
  /// that a chunk goes to.
  template <class PlaceChunk>
  __device__ void load_async(const SharedMatrix<T>& tile, int next, PlaceChunk place) {
    const unsigned thread = opaque(threadIdx.x);  // what follows from it is cheaper to compute again than to keep in registers
    const int row = static_cast<int>(thread / CHUNKS), col = static_cast<int>(thread % CHUNKS) * 8;
    if (SOME_IDLE && row >= AT_ONCE) return;
    const bool exists = col < from.cols;
    const int from_col = exists ? col : 0, bytes = exists ? 16 : 0;
    const int to_col = place(row, col);
    Matrix<const T> rest = from;
    if (from.rows > (STEPS - 1) * AT_ONCE) {
#pragma unroll
      for (int step = 0; step < STEPS; ++step, rest = rest.below(AT_ONCE)) {
        const int to_row = row + step * AT_ONCE;
        cp_async_zfill<16>(tile.address(to_row, AT_ONCE % 8 == 0 ? to_col : place(to_row, col)), rest.address(0, from_col),
                           bytes);
      }
    } else {  // the last rows of the matrix; the first of the tile is always one of them
#pragma unroll 1
      for (int to_row = row; to_row < Rows; to_row += AT_ONCE, rest = rest.below(AT_ONCE)) {
        const bool row_exists = rest.rows > 0;
        cp_async_zfill<16>(tile.address(to_row, place(to_row, col)),
                           row_exists ? rest.address(0, from_col) : from.below(-row).address(0, from_col),
                           row_exists ? bytes : 0);
      }
    }
    from = from.below(next);
  }
};

// ---- Scores ---------------------------------------------------------------------------------------------------------------------

/// S_reg = scale S_reg + bias, the bias where there are a query and a key. The tile's first row and column are row0 and col0.
template <int TM, int TN>
__device__ void scale_and_add_bias(float (&S_reg)[TM][TN][4], const Problem& problem, const Bias& bias,
                                   const Matrix<const float>& values, int row0, int col0, const Place<TM>& at) {
#pragma unroll
  for (int i = 0; i < TM; ++i) {
#pragma unroll
    for (int n = 0; n < TN; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) S_reg[i][n][e] *= problem.scale;
    }
  }
  if (bias.kind == BiasKind::none) return;
  row0 = opaque(row0), col0 = opaque(col0);
  const float slope = bias.kind == BiasKind::alibi ? values(0, 0) : 0.0f;
#pragma unroll
  for (int i = 0; i < TM; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row0 + at.row(i, half);
#pragma unroll
      for (int n = 0; n < TN; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int col = col0 + 8 * n + at.col() + e;
          float& score = S_reg[i][n][2 * half + e];
          if (bias.kind == BiasKind::alibi) {
            score -= slope * fabsf(static_cast<float>(row + bias.diagonal - col));
          } else if (row < problem.Nq && col < problem.Nk) {
            score += values(row, col);
          }
        }
        asm volatile("" ::: "memory");  // a pair at a time: for all values at once there are not enough registers
      }
    }
  }
}

/// Keys that a query does not see, or that do not exist, score -inf.
template <int TM, int TN>
__device__ void mask(float (&S_reg)[TM][TN][4], const Problem& problem, int row0, int col0, const Place<TM>& at) {
  row0 = opaque(row0), col0 = opaque(col0);
#pragma unroll
  for (int i = 0; i < TM; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int visible = problem.visible_keys(row0 + at.row(i, half)) - col0 - at.col();
#pragma unroll
      for (int n = 0; n < TN; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          if (8 * n + e >= visible) S_reg[i][n][2 * half + e] = -INFINITY;
        }
      }
    }
  }
}

// ---- Output ---------------------------------------------------------------------------------------------------------------------

/// O = O / l and L = m + ln l, of the warp's rows of the tile that begins at row0. l: of this lane's columns. m: the largest score of the
/// row, times `factor`. Accumulators would leave as 4 bytes a lane, half a sector in each of 8 rows; through O_smem, whose rows of this
/// warp nobody else uses any more, they leave as chunks of 16. place() as in load_async.
template <class T, int TM, int TD, class PlaceChunk>
__device__ void write_output(const SharedMatrix<T>& O_smem, const float (&O_reg)[TM][TD][4], const float (&m)[TM][2],
                             const float (&l)[TM][2], float factor, const Matrix<T>& O, const Vector<float>& L, int row0,
                             const Place<TM>& at, PlaceChunk place) {
  __syncwarp();  // write after read: all lanes are done with the tile that was here
#pragma unroll
  for (int i = 0; i < TM; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = l[i][half];  // of this lane's columns; then of the row, which the 4 lanes of a quad share
      sum += __shfl_xor_sync(ALL_LANES, sum, 1);
      sum += __shfl_xor_sync(ALL_LANES, sum, 2);
      const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;  // no visible key: O = 0
      const int row = at.row(i, half);
      if (at.col() == 0 && row0 + row < O.rows) L(row0 + row) = sum == 0.0f ? -INFINITY : m[i][half] * factor + logf(sum);
#pragma unroll
      for (int n = 0; n < TD; ++n) {
        O_smem.template as<unsigned>(row, place(row, 8 * n) + at.col()) =
            pack<T>(O_reg[i][n][2 * half] * inverse, O_reg[i][n][2 * half + 1] * inverse);
      }
    }
  }
  __syncwarp();  // read after write: a lane sends what others have written
  const int rows = min(16 * TM, O.rows - row0 - at.warp_row);
  if (O.cols % 8 == 0) {  // then rows begin at multiples of 16 bytes (rows_are_aligned)
    for (int index = at.lane; index < rows * TD; index += WARP) {
      const int row = at.warp_row + index / TD, col = index % TD * 8;
      if (col >= O.cols) continue;
      const uint4 chunk = O_smem.template as<uint4>(row, place(row, col));
      O.template as<uint4>(row0 + row, col) = chunk;
    }
  } else {
    constexpr int steps = TD / 4;  // 32 columns at a time
    for (int row = at.warp_row; row < at.warp_row + rows; ++row) {
      T numbers[steps];
#pragma unroll
      for (int step = 0; step < steps; ++step) {  // all reads before the first write
        const int col = at.lane + step * WARP;
        numbers[step] = O_smem(row, place(row, col / 8 * 8) + col % 8);
      }
#pragma unroll
      for (int step = 0; step < steps; ++step) {
        const int col = at.lane + step * WARP;
        if (col < O.cols) O(row0 + row, col) = numbers[step];
      }
    }
  }
}

// ---- Rows that do not begin at multiples of 16 bytes ----------------------------------------------------------------------------------
//
// A row of d = 59 numbers of 2 bytes begins anywhere, and no copy of 16 bytes can start there. Reading it number by number in every tile
// would cost more than the products, so Q, K and V are first copied once to where their rows are padded with zeros to whole chunks.

constexpr int PAD_THREADS = 256, PAD_ROWS = 4;  // rows of a warp: enough reads on their way at a time
constexpr int PAD_BLOCK_ROWS = PAD_THREADS / WARP * PAD_ROWS;

/// To = From, PAD_ROWS rows a warp; zeros beyond the last column of From.  Grid: (rows / PAD_BLOCK_ROWS) * B*heads.
template <class T>
__global__ void __launch_bounds__(PAD_THREADS) pad_kernel(Tensor<const T> From, Tensor<T> To) {
  const int heads = To.batches * To.heads;
  const int head = blockIdx.x % heads;
  const int row0 = blockIdx.x / heads * PAD_BLOCK_ROWS + threadIdx.x / WARP * PAD_ROWS;
  const Matrix<const T> from = From.head(head / To.heads, head % To.heads);
  const Matrix<T> to = To.head(head / To.heads, head % To.heads);
  constexpr int steps = 256 / WARP;  // of the longest row
  T numbers[PAD_ROWS][steps];
#pragma unroll
  for (int r = 0; r < PAD_ROWS; ++r) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {  // all reads are on their way before the first number is written
      const int col = threadIdx.x % WARP + step * WARP;
      numbers[r][step] = T(0.0f);
      if (row0 + r < from.rows && col < from.cols) numbers[r][step] = from(row0 + r, col);
    }
  }
#pragma unroll
  for (int r = 0; r < PAD_ROWS; ++r) {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      const int col = threadIdx.x % WARP + step * WARP;
      if (row0 + r < to.rows && col < to.cols) to(row0 + r, col) = numbers[r][step];
    }
  }
}

/// Do rows of Q, K, V, O and their gradients begin at multiples of 16 bytes? Their strides are multiples of d.
bool rows_are_aligned(const Problem& p) { return p.d % 8 == 0; }

/// The workspace that holds a padded copy of a tensor [B, heads, rows, d].
WorkspaceSpec padded_copy(const char* name, const Problem& p, int heads, int rows) {
  return {name, {p.B, heads, rows, whole_chunks(p.d)}, p.dtype};
}

/// `t` if its rows are aligned, else its padded copy in the workspace of that name, which is made here.
template <class T>
TensorRef aligned(const Attention& a, const TensorRef& t, const char* name) {
  if (rows_are_aligned(a.problem)) return t;
  const TensorRef& copy = a.workspace(name);
  const auto heads = static_cast<unsigned>(copy.shape[0] * copy.shape[1]);
  launch("pad", {dim3(blocks_for(static_cast<int>(copy.shape[2]), PAD_BLOCK_ROWS) * heads), dim3(PAD_THREADS)}, pad_kernel<T>,
         view<const T>(t), view<T>(copy));
  return copy;
}

/// The padded copies that the forward pass needs.
std::vector<WorkspaceSpec> forward_workspace(const Problem& p, Pass) {
  if (rows_are_aligned(p)) return {};
  return {padded_copy("Q_padded", p, p.H, p.Nq), padded_copy("K_padded", p, p.Hkv, p.Nk),
          padded_copy("V_padded", p, p.Hkv, p.Nk)};
}

// ---- Compiled kernels -----------------------------------------------------------------------------------------------------------------

#ifdef __CUDA_ARCH__
constexpr int COMPILED_SM = __CUDA_ARCH__ / 10;  // of the GPU that the code is compiled for
#else
constexpr int COMPILED_SM = 90;
#endif

/// The oldest GPU for which a tile is compiled: sm_75 has 64 KB of shared memory, and the two halves of a product there need registers
/// that large tiles do not leave.
constexpr int min_sm(int width, int row_tiles, int shared_numbers) {
  return 2 * shared_numbers > 65536 || (width >= 128 && row_tiles == 2) ? 80 : 75;
}

/// A compiled pair of kernels, one for each type.
struct Compiled {
  int width;
  int min_sm;  // 80 for compute capability 8.0
  Tiles tiles;
  int threads;
  std::size_t shared_bytes;
  const char* why;
  void (*start_fp16)(const Attention&);
  void (*start_bf16)(const Attention&);
};

/// d padded to a width that is compiled.
int width_of(int d) { return d <= 128 ? (d + 31) / 32 * 32 : 256; }

/// Those whose shared memory the device has. If the first has too few tiles of Q to give each SM a block, the first that has enough comes
/// before it.
template <std::size_t N>
std::vector<TileChoice> choices(const Compiled (&kernels)[N], const Problem& p, const DeviceLimits& limits) {
  std::vector<TileChoice> fit;
  for (const Compiled& k : kernels) {
    if (k.width == width_of(p.d) && k.shared_bytes <= limits.shared_bytes && k.min_sm <= limits.sm)
      fit.push_back({k.tiles, k.threads, k.shared_bytes, k.why});
  }
  const auto enough = std::find_if(fit.begin(), fit.end(), [&](const TileChoice& choice) {
    return std::int64_t{blocks_for(p.Nq, choice.tiles.Br)} * p.B * p.H >= limits.multiprocessors;
  });
  if (enough != fit.end()) std::rotate(fit.begin(), enough, enough + 1);
  return fit;
}

/// Starts the one that has the tiles of the run.
template <std::size_t N>
void start(const Compiled (&kernels)[N], const Attention& a) {
  for (const Compiled& k : kernels) {
    if (k.width == width_of(a.problem.d) && k.tiles == a.tiles) {
      return (a.problem.dtype == Dtype::fp16 ? k.start_fp16 : k.start_bf16)(a);
    }
  }
}

/// "" or why the grid cannot hold a problem: it has a block for each tile of Q, batch and head, in x, which has 32 rows at least; so has
/// a block that pads.
std::string refuse_forward(const Problem& p) {
  constexpr std::int64_t limit = 2147483647;
  const std::int64_t heads = std::int64_t{p.B} * p.H;
  const int longest = rows_are_aligned(p) ? p.Nq : std::max(p.Nq, p.Nk);
  if (heads <= limit / blocks_for(longest, 32)) return "";
  return std::to_string(heads) + " heads with " + std::to_string(longest) + " rows each; a CUDA grid holds at most " +
         std::to_string(limit) + " blocks in a row, each of 32 rows or more";
}

// ---- What a device can do -------------------------------------------------------------------------------------------------------------

std::string refuse_on(const Problem& p, const DeviceLimits& limits) {
  if (p.dtype == Dtype::bf16 && limits.sm < 80) {
    return "--dtype bf16 needs a GPU of compute capability 8.0 or newer, this one has " + std::to_string(limits.sm / 10) + "." +
           std::to_string(limits.sm % 10) + "; fp16 runs on it";
  }
  return "";
}

}  // namespace
}  // namespace flash::tensor_cores
