// 08 Tensor cores, backward: what comes before the kernels: L and D, copies of rows that are not aligned, workspaces, the choice of
// tiles, and the forward pass of step 4.
#pragma once

#include "08_tensor_cores/backward_parts.cuh"

#include <stdexcept>
#include <string_view>

namespace flash::tensor_cores {
namespace {

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

/// "" or why the grids cannot hold a problem: a block of prepare_kernel has 8 queries at least, one of the others more rows than that.
std::string refuse_backward(const Problem& p) {
  constexpr std::int64_t limit = 2147483647;
  const std::string forward_refusal = refuse_forward(p);
  if (!forward_refusal.empty()) return forward_refusal;
  const std::int64_t heads = std::int64_t{p.B} * p.H;
  const int longest = std::max(padded_queries(p), p.Nk);
  if (heads <= limit / blocks_for(longest, 8)) return "";
  return std::to_string(heads) + " heads with " + std::to_string(longest) + " rows each; a CUDA grid holds at most " +
         std::to_string(limit) + " blocks in a row, each of 8 rows or more";
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

/// The tiles for a problem on a device: those whose shared memory the device has. If the first has too few tiles of keys to give each SM a
/// block, the first that has enough comes before it.
std::vector<TileChoice> tiles_of(const std::vector<Compiled>& kernels, const Problem& p, Pass pass,
                                 const DeviceLimits& limits) {
  if (pass == Pass::forward) return forward_step().tiles(p, pass, limits);
  std::vector<TileChoice> fit;
  for (const Compiled& k : kernels) {
    if (k.width == width_of(p.d) && k.shared_bytes <= limits.shared_bytes) {
      fit.push_back({k.tiles, k.threads, k.shared_bytes, k.why});
    }
  }
  const auto enough = std::find_if(fit.begin(), fit.end(), [&](const TileChoice& choice) {
    return std::int64_t{blocks_for(p.Nk, choice.tiles.Bc)} * p.B * p.Hkv >= limits.multiprocessors;
  });
  if (enough != fit.end()) std::rotate(fit.begin(), enough, enough + 1);
  return fit;
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
