// 08 Tensor cores, all steps: a matrix in the registers of a warp, and its products. With this type
// steps read like their equations:
//
//   add_product(S, Q.left(), K.transposed());             S += Q K^T. Q, K, V: in shared memory
//   const auto alpha = update_max(m, row_max(S), expf);   m, alpha: one value per row (rows.cuh)
//   O.scale_rows(alpha);                                  S, O: accumulators of a warp
//   add_product(O, P.left(), V.right());                  O += P V, in steps 1 to 3; from step 4 on
//                                                         P is S's accumulators, rounded
//
// A warp holds 16 RowFragments rows of a matrix in fp32, in fragments of 16 x 8
// (common/machine/isa/fragments.hpp). With g = lane / 4 and t = lane % 4, a lane holds columns 2t,
// 2t + 1 of rows g and g + 8 of each: the 4 lanes of a quad share a row. A lane thus holds elements
// of 2 RowFragments rows, r = 0, 1, ...: row 8 r + g of the matrix. `reg` counts a lane's four
// registers of an operand's block.
#pragma once

#include "common/machine/float16.cuh"
#include "common/machine/isa/fragments.hpp"
#include "common/machine/ptx.cuh"
#include "common/parts/rows.cuh"

namespace flash::tensor_cores {
namespace {

/// Two fp32 values, rounded to T, in one register.
template <class T>
__device__ inline unsigned pack(float low, float high) {
  if (is_fp16<T>()) {
    return pack_f16(low, high);
  } else {
    return pack_bf16(low, high);
  }
}

/// The two values that pack() has put into a register.
template <class T>
__device__ float2 unpack(unsigned pair) {
  if (is_fp16<T>()) {
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  } else {
    return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(pair));
  }
}

/// A matrix in the registers of a warp: 16 RowFragments rows, 8 ColFragments columns.
template <int RowFragments, int ColFragments>
struct Accumulators {
  static constexpr int ROWS = 2 * RowFragments, LANES = 4, HEIGHT = 16 * RowFragments,
                       WIDTH = 8 * ColFragments;
  // Per fragment two of row r = 2 i, then two of row r = 2 i + 1.
  float elements[RowFragments][ColFragments][4];

  __device__ Accumulators() {}  // for a product that does not add
  __device__ explicit Accumulators(float all) {
    each([&](float& x, int) { x = all; });
  }

  template <class F>
  __device__ void each(F f) {
    visit(*this, f);
  }
  template <class F>
  __device__ void each(F f) const {
    visit(*this, f);
  }
  template <class F>
  __device__ void each_at(F f) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int n = 0; n < ColFragments; ++n) {
#pragma unroll
      for (int i = 0; i < RowFragments; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          f(elements[i][n][e], 16 * i + fragment::c_row(lane, e), 8 * n + fragment::c_col(lane, e));
      }
    }
  }
  __device__ void scale_rows(const Rows<ROWS>& factor) {
    each([&](float& x, int r) { x *= factor[r]; });
  }

  /// Element by element.
  __device__ void multiply(const Accumulators& other) {
#pragma unroll
    for (int index = 0; index < RowFragments * ColFragments * 4; ++index) {
      const int i = index / 4 / ColFragments, n = index / 4 % ColFragments, e = index % 4;
      elements[i][n][e] *= other.elements[i][n][e];
    }
  }

  /// The two neighbours in row g + 8 half of fragment (i, n), rounded to T, as one register. half:
  /// 0 or 1.
  template <class T>
  __device__ unsigned pair(int i, int n, int half) const {
    return pack<T>(elements[i][n][2 * half], elements[i][n][2 * half + 1]);
  }

 private:
  template <class Self, class F>
  __device__ static void visit(Self& self, F f) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
      for (int e = 0; e < 2 * ColFragments; ++e)
        f(self.elements[r / 2][e / 2][2 * (r % 2) + e % 2], r);
    }
  }
};

// ---- Products ----------------------------------------------------------------------------------

/// C += A B   [16, 16] x [16, 8], B as its two registers.
template <class T>
__device__ inline void add_mma(float (&C)[4], const unsigned (&A)[4], unsigned B0, unsigned B1) {
  if (is_fp16<T>()) {
    mma_m16n8k16_f16(C, A, {B0, B1}, C);
  } else {
    mma_m16n8k16_bf16(C, A, {B0, B1}, C);
  }
}

/// C += A B. Operands are loaded in 16 x 16 blocks, four registers per lane: A.load(registers, i,
/// k) loads rows 16 i.., B.load(registers, j, k) columns 16 j.., at 16 k.. in the inner dimension.
/// A.DEPTH: how many such blocks the inner dimension has. A block of B is two 16 x 8 fragments.
template <int RowFragments, int ColFragments, class Left, class Right>
__device__ void add_product(Accumulators<RowFragments, ColFragments>& C, const Left& A,
                            const Right& B) {
  using T = typename Left::T;
#pragma unroll
  for (int k = 0; k < Left::DEPTH; ++k) {
    unsigned a[RowFragments][4], b[4];
#pragma unroll
    for (int i = 0; i < RowFragments; ++i) A.load(a[i], i, k);
#pragma unroll
    for (int j = 0; j < ColFragments / 2; ++j) {
      B.load(b, j, k);
#pragma unroll
      for (int i = 0; i < RowFragments; ++i) {
        add_mma<T>(C.elements[i][2 * j], a[i], b[0], b[1]);
        add_mma<T>(C.elements[i][2 * j + 1], a[i], b[2], b[3]);
      }
    }
  }
}

/// A left operand in registers: rows of a tile, or accumulators rounded to T.
template <class T_, int RowFragments, int Depth>
struct InRegisters {
  using T = T_;
  static constexpr int DEPTH = Depth, ROW_FRAGMENTS = RowFragments;
  unsigned blocks_reg[Depth][RowFragments][4];

  __device__ InRegisters() {}
  template <class Operand>
  __device__ explicit InRegisters(const Operand& A) {
#pragma unroll
    for (int k = 0; k < Depth; ++k) {
#pragma unroll
      for (int i = 0; i < RowFragments; ++i) A.load(blocks_reg[k][i], i, k);
    }
  }
  /// In fragments n = 2 k and 2 k + 1 a lane holds exactly its elements of block k. Packs all of P
  /// now; for an operand of a single add_product(), rounded() of parts/tile.cuh saves the
  /// registers.
  __device__ explicit InRegisters(const Accumulators<RowFragments, 2 * Depth>& P) {
#pragma unroll
    for (int index = 0; index < Depth * RowFragments * 4; ++index) {
      const int k = index / 4 / RowFragments, i = index / 4 % RowFragments, reg = index % 4;
      blocks_reg[k][i][reg] = P.template pair<T>(i, 2 * k + reg / 2, reg % 2);
    }
  }
  __device__ void load(unsigned (&block)[4], int i, int k) const {
#pragma unroll
    for (int reg = 0; reg < 4; ++reg) block[reg] = blocks_reg[k][i][reg];
  }
  __device__ const unsigned (&operator()(int k) const)[4] {
    static_assert(RowFragments == 1, "wgmma takes 16 rows of each warp");
    return blocks_reg[k][0];
  }
};

// ---- Epilogue ----------------------------------------------------------------------------------

/// Stores C, rounded to T, to the rows of a tile in shared memory.
template <class Staging, int RowFragments, int ColFragments>
__device__ void store(const Staging& rows, const Accumulators<RowFragments, ColFragments>& C) {
  const int lane = threadIdx.x % WARP;
#pragma unroll
  for (int r = 0; r < C.ROWS; ++r) {
#pragma unroll
    for (int n = 0; n < ColFragments; ++n) {
      const unsigned pair = C.template pair<typename Staging::T>(r / 2, n, r % 2);
      rows.template as<unsigned>(8 * r + lane / 4, 8 * n + fragment::c_col(lane, 0)) = pair;
    }
  }
}

/// Writes C, rounded to T, to rows row0, row0 + 1, ... of M from column col0 on. Straight from
/// accumulators a lane would write 4 bytes at a time, half a sector in each of 8 rows; through
/// `staging`, rows of a tile in shared memory that no other warp still uses, it writes 16-byte
/// chunks. (A row has whole chunks: Variant::row_multiple.)
template <class T, int RowFragments, int ColFragments, class Staging>
__device__ void write_rows(const Matrix<T>& M, int row0,
                           const Accumulators<RowFragments, ColFragments>& C,
                           const Staging& staging, int col0 = 0) {
  // Write after read: all lanes have read the previous content of these rows.
  __syncwarp();
  store(staging, C);
  // Read after write: a lane reads what other lanes have stored.
  __syncwarp();
  const int rows = min(C.HEIGHT, M.rows - row0);
  for (int index = threadIdx.x % WARP; index < rows * ColFragments; index += WARP) {
    const int row = index / ColFragments, col = index % ColFragments * 8;
    if (col0 + col >= M.cols) continue;
    const uint4 chunk = staging.template as<uint4>(row, col);
    M.template as<uint4>(row0 + row, col0 + col) = chunk;
  }
}

}  // namespace
}  // namespace flash::tensor_cores
