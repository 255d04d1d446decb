// 01 naive with the options of chapter 09: a sliding window, a softcap, ragged batches, dropout,
// the gradient of the bias, hyperbolic scores (lorentz.cuh) and centroids (centroid.cuh).
//
//   forward    s = scale q_i . k_j                                                      (1.1)
//              S_ij = c tanh(s / c) + bias, -inf where the window hides key j  (9.1), (9.3), (9.7)
//   backward   dS = P o (dP - rowsum(P o dP)) o (1 - (capped / c)^2)                    (9.2)
//   dropout    O = (P o Z) V,   dV = (P o Z)^T dO,   dP = Z o dO V^T  (9.12), (9.13)
//   lorentz    s = -scale d(q_i, k_j), the distance on the hyperboloid                  (9.20)
//   centroid   O = (P V) / N,  L = L + ln N,  N the Lorentz norm of P V             (9.25), (9.26)
//   bias       dBias = sum of P o (dP - rowsum(P o dP)) over the heads that share it    (9.16)
//
// New since kernel.cuh, whose products and softmax stay as they are: four kernels.
// - scores_kernel caps the scores, adds the bias, and hides what is outside the window.
// - slope_kernel multiplies dS by the slope of the cap, for which it reads S once more.
// - drop_kernel multiplies P, and in the backward pass dP, by Z in place. dS needs P as it was, so
//   the backward pass runs the softmax again.
// - bias_gradient_kernel sums dS before the slope multiplies it.
//
// A ragged batch is a loop on the host: the kernels run once per sequence, on its rows alone.
//
// HBM: as kernel.cuh. Dropout reads and writes P, and in the backward pass dP, once more; with a
//   softcap the backward pass also reads S, and the bias; the gradient of the bias reads dS once
//   and is written once. S and P hold all pairs of a ragged batch, although only those within a
//   sequence are used.
#pragma once

#include "01_naive/kernel.cuh"
#include "01_naive/more/centroid.cuh"
#include "01_naive/more/lorentz.cuh"
#include "common/parts/ragged.cuh"

namespace flash::naive::more_options {
namespace {

/// (9.1)  S = scale Q K^T, capped, + bias, masked    [Nq, d] x [d, Nk].
/// Grid: (tiles of keys, tiles of queries, B*H).
__global__ void scores_kernel(OptionsProblem problem, Tensor<const float> Q_all,
                              Tensor<const float> K_all, Bias bias, Tensor<float> S_all) {
  const int b = blockIdx.z / problem.H;
  const int h = blockIdx.z % problem.H;
  const int row0 = blockIdx.y * TILE;
  const int col0 = blockIdx.x * TILE;
  const float dot = tile_product<false, true>(Q_all.head(b, h), K_all.head(b, problem.kv_head(h)),
                                              row0, col0, problem.d);
  const int i = row0 + threadIdx.y;
  const int j = col0 + threadIdx.x;
  if (i < problem.Nq && j < problem.Nk)
    S_all.head(b, h)(i, j) = score(problem, bias, b, h, i, j, dot);
}

/// (9.2)  Multiplies dS by the slope of the cap, in place. S - bias recovers the capped score, with
/// fewer digits if the bias is much larger than the cap. A masked pair has S = -inf, P = 0 and dS =
/// 0.  A thread owns a row.  Grid: (blocks of rows, 1, B*H).
__global__ void slope_kernel(OptionsProblem problem, Tensor<const float> S_all, Bias bias,
                             Tensor<float> dS_all) {
  const int b = blockIdx.z / problem.H;
  const int h = blockIdx.z % problem.H;
  const int i = blockIdx.x * ROWS_PER_BLOCK + threadIdx.x;
  if (i >= problem.Nq) return;  // no barrier follows
  const Matrix<const float> S = S_all.head(b, h);
  const Matrix<float> dS = dS_all.head(b, h);
  for (int j = problem.first_key(i); j < problem.end_key(i); ++j) {
    const float s = S(i, j);
    dS(i, j) =
        s == -INFINITY ? 0.0f : dS(i, j) * slope_of_cap(s - bias(b, h, i, j), problem.softcap);
  }
}

/// (9.12), (9.13)  A = A o Z, for A = P or dP. A thread owns the four elements that share a call of
/// Philox.
/// Grid: (tiles of 2 TILE keys, tiles of 2 TILE queries, B*H).
__global__ void drop_kernel(Problem problem, DropMask mask, int sequence, Tensor<float> A_all) {
  constexpr int key_stride = DropMask::APART;
  const Matrix<float> A = A_all.head(blockIdx.z / problem.H, blockIdx.z % problem.H);
  const int x = blockIdx.x * TILE + threadIdx.x;
  const int i0 = 2 * (blockIdx.y * TILE + threadIdx.y);
  const int j0 = x + x / key_stride * key_stride;  // the next 16 keys belong to the same threads
  const FourWords drawn = mask.draw(sequence * problem.H + blockIdx.z, i0, j0);
  for (int n = 0; n < 4; ++n) {
    const int i = i0 + n / 2, j = j0 + n % 2 * key_stride;
    if (i < problem.Nq && j < problem.Nk) A(i, j) *= mask.factor(drawn, i, j);
  }
}

/// (9.16)  dBias = the sum of dS, before the slope, over the heads that share the bias, always in
/// the same order. A thread owns an element.  Grid: (tiles of keys, tiles of queries, matrices of
/// the bias).
__global__ void bias_gradient_kernel(Problem problem, Tensor<const float> dS_all,
                                     Tensor<float> dBias_all) {
  const SharingHeads sharing = sharing_heads(problem, blockIdx.z);
  const int i = blockIdx.y * TILE + threadIdx.y;
  const int j = blockIdx.x * TILE + threadIdx.x;
  if (i >= problem.Nq || j >= problem.Nk) return;  // no barrier follows
  float sum = 0.0f;
  for (int b = sharing.first_b; b < sharing.end_b; ++b) {
    for (int h = sharing.first_h; h < sharing.end_h; ++h) sum += dS_all.head(b, h)(i, j);
  }
  dBias_all.head(sharing.b, sharing.h)(i, j) = sum;
}

/// Rows of a tensor in fp32, from a column on.
TensorRef rows_of(TensorRef t, int first, int count, int col = 0) {
  if (!t.exists()) return t;  // dO and the gradients, in a forward pass
  t.data = static_cast<float*>(t.data) + first * t.stride[2] + col;
  t.shape[2] = count;
  return t;
}

/// A run of the kernels, and the number of its sequence in the batch, for dropout's random numbers.
struct SequenceRun {
  Attention a;
  int sequence = 0;
};

/// [B, H, Nq, .]: the gradient of the weighted sum of rows of V, and of its time component.
std::vector<WorkspaceSpec> query_workspaces(const Problem& p, Pass pass) {
  if (pass == Pass::forward) return {};
  return {{.name = "d_sum", .shape = {p.B, p.H, p.Nq, p.d}, .only_for = Features::centroid},
          {.name = "d_time", .shape = {p.B, p.H, p.Nq, 1}, .only_for = Features::centroid}};
}

/// One run per sequence if the batch is ragged, with views of the sequence's rows of all tensors
/// and workspaces; else one.
std::vector<SequenceRun> sequences_of(const Attention& a, Pass pass) {
  const Sequences& sequences = a.problem.sequences;
  if (sequences.empty()) return {{a}};
  Attention one = a;
  one.problem.sequences = {};
  std::vector<SequenceRun> all;
  for (int s = 0; s < sequences.count(); ++s) {
    const auto at = static_cast<std::size_t>(s);
    const int query = sequences.queries[at], key = sequences.keys[at];
    static_cast<OptionsProblem&>(one.problem) = a.problem.sequence(s);
    const auto [Nq, Nk] = std::pair{one.problem.Nq, one.problem.Nk};
    one.Q = rows_of(a.Q, query, Nq), one.O = rows_of(a.O, query, Nq),
    one.L = rows_of(a.L, query, Nq);
    one.K = rows_of(a.K, key, Nk), one.V = rows_of(a.V, key, Nk);
    one.dO = rows_of(a.dO, query, Nq), one.dQ = rows_of(a.dQ, query, Nq);
    one.dK = rows_of(a.dK, key, Nk), one.dV = rows_of(a.dV, key, Nk);
    one.workspaces.clear();
    for (const WorkspaceSpec& spec : pair_matrices(a.problem, pass)) {
      one.workspaces.push_back(rows_of(a.workspace(spec.name), query, Nq, key));
      one.workspaces.back().shape[3] = Nk;
    }
    for (const WorkspaceSpec& spec : query_workspaces(a.problem, pass)) {
      if (a.problem.values == Values::centroid)
        one.workspaces.push_back(rows_of(a.workspace(spec.name), query, Nq));
    }
    all.push_back({one, s});
  }
  return all;
}

/// One thread per row.
LaunchShape row_per_thread(const Problem& p) {
  return by_rows(p, ROWS_PER_BLOCK, dim3(ROWS_PER_BLOCK));
}

/// Launches unless there is nothing to compute: the grid of a result without elements would be
/// empty.
template <class... Arguments>
void launch_unless_empty(const char* name, const LaunchShape& shape, Arguments&&... arguments) {
  if (shape.grid.x > 0 && shape.grid.y > 0 && shape.grid.z > 0) launch(name, shape, arguments...);
}

/// Draws Z, if there is dropout, and multiplies A = P or dP by it.
void drop(const SequenceRun& run, const TensorRef& A) {
  const FullProblem& p = run.a.problem;
  if (p.dropout.probability == 0.0f) return;
  launch_unless_empty("drop", tiled((p.Nq + 1) / 2, (p.Nk + 1) / 2, p.B * p.H), drop_kernel, p,
                      DropMask(p.dropout), run.sequence, view<float>(A));
}

void forward_of_one(const SequenceRun& run) {
  const Attention& a = run.a;
  const FullProblem& p = a.problem;
  const auto Q = view<const float>(a.Q), K = view<const float>(a.K), V = view<const float>(a.V);
  const auto S = a.workspace("S"), P = a.workspace("P");
  const auto scores =
      p.score == Score::lorentz ? lorentz::scores_kernel : more_options::scores_kernel;
  launch_unless_empty("scores", tiled(p.Nq, p.Nk, p.B * p.H), scores, p, Q, K, bias_of(a),
                      view<float>(S));
  launch_unless_empty("softmax", row_per_thread(p), softmax_kernel, p, view<const float>(S),
                      view<float>(P), view<float>(a.L));
  drop(run, P);
  launch_unless_empty("output", tiled(p.Nq, p.d, p.B * p.H), output_kernel, p, view<const float>(P),
                      V, view<float>(a.O));
  if (p.values == Values::centroid) {
    launch_unless_empty("centroid", row_per_thread(p), centroid::centroid_kernel, p, V,
                        view<float>(P), view<float>(a.O), view<float>(a.L));
  }
}

/// Runs after forward_of_one(), which left S and P o Z in their workspaces, and leaves them there.
/// Dropout multiplies P in place, and dS needs it as it was, hence 1 and 6 (1 writes the same L
/// again). With --score lorentz dS becomes G in place, and theta G takes the place of dP, which has
/// been used up.
void backward_of_one(const SequenceRun& run) {
  const Attention& a = run.a;
  const FullProblem& p = a.problem;
  const auto Q = view<const float>(a.Q), K = view<const float>(a.K), V = view<const float>(a.V);
  const auto dO = view<const float>(a.dO);
  const auto S = view<const float>(a.workspace("S")), P = view<const float>(a.workspace("P"));
  const auto dP = a.workspace("dP"), dS = a.workspace("dS");
  // 1. P again without Z. Never with a centroid, whose norm this would undo.
  if (p.dropout.probability != 0.0f)
    launch_unless_empty("softmax", row_per_thread(p), softmax_kernel, p, S,
                        view<float>(a.workspace("P")), view<float>(a.L));
  // 2. dP, then Z o dP.
  const bool centroids = p.values == Values::centroid;
  const auto dO_or_d_sum = centroids ? view<const float>(a.workspace("d_sum")) : dO;
  if (centroids) {
    launch_unless_empty("sum_gradient", row_per_thread(p), centroid::sum_gradient_kernel, p, dO,
                        view<const float>(a.O), view<float>(a.workspace("d_sum")),
                        view<float>(a.workspace("d_time")));
    launch_unless_empty("dP", tiled(p.Nq, p.Nk, p.B * p.H), centroid::dP_kernel, p, dO_or_d_sum,
                        view<const float>(a.workspace("d_time")), V, view<float>(dP));
  } else {
    launch_unless_empty("dP", tiled(p.Nq, p.Nk, p.B * p.H), dP_kernel, p, dO, V, view<float>(dP));
  }
  drop(run, dP);
  // 3. dS, and dBias before any slope.
  launch_unless_empty("dS", by_rows(p, dS_ROWS, dim3(dS_ROWS)), dS_kernel, p, P,
                      view<const float>(dP), view<float>(dS));
  if (p.bias_gradient) {
    launch_unless_empty("bias_gradient", tiled(p.Nq, p.Nk, bias_matrices(p)), bias_gradient_kernel,
                        p, view<const float>(dS), view<float>(a.dBias));
  }
  // 4. dS times the slope of the cap.
  if (p.softcap != 0.0f)
    launch_unless_empty("slope", row_per_thread(p), slope_kernel, p, S, bias_of(a),
                        view<float>(dS));
  // 5. dQ and dK.
  if (p.score == Score::lorentz) {
    launch_unless_empty("slope_of_distance", tiled(p.Nq, p.Nk, p.B * p.H), lorentz::slope_kernel, p,
                        Q, K, view<float>(dS), view<float>(dP));
    const auto G = view<const float>(dS), theta_G = view<const float>(dP);  // in their places
    launch_unless_empty("dQ", tiled(p.Nq, p.d, p.B * p.H), lorentz::dQ_kernel, p, G, theta_G, Q, K,
                        view<float>(a.dQ));
    launch_unless_empty("dK", tiled(p.Nk, p.d, p.B * p.Hkv), lorentz::dK_kernel, p, G, theta_G, Q,
                        K, view<float>(a.dK));
  } else {
    launch_unless_empty("dQ", tiled(p.Nq, p.d, p.B * p.H), dQ_kernel, p, view<const float>(dS), K,
                        view<float>(a.dQ));
    launch_unless_empty("dK", tiled(p.Nk, p.d, p.B * p.Hkv), key_gradient_kernel, p, p.scale,
                        view<const float>(dS), Q, view<float>(a.dK));
  }
  // 6. P o Z again, and dV.
  drop(run, a.workspace("P"));
  launch_unless_empty("dV", tiled(p.Nk, p.d, p.B * p.Hkv), key_gradient_kernel, p, 1.0f, P,
                      dO_or_d_sum, view<float>(a.dV));
  if (centroids) {
    launch_unless_empty("add_time", tiled(p.Nk, p.d, p.B * p.Hkv), centroid::add_time_kernel, p, P,
                        view<const float>(a.workspace("d_time")), V, view<float>(a.dV));
  }
}

void forward(const Attention& a) {
  for (const SequenceRun& run : sequences_of(a, Pass::forward)) forward_of_one(run);
}
void backward(const Attention& a) {
  for (const SequenceRun& run : sequences_of(a, Pass::backward)) backward_of_one(run);
}

std::vector<WorkspaceSpec> all_workspaces(const Problem& p, Pass pass) {
  std::vector<WorkspaceSpec> all = pair_matrices(p, pass);
  for (const WorkspaceSpec& spec : query_workspaces(p, pass)) all.push_back(spec);
  return all;
}

const Variant variant{.name = "options",
                      .idea =
                          "a window and a softcap in the scores, the cap's slope in dS, sequences "
                          "one by one, dropout, dBias, "
                          "hyperbolic distances and centroids",
                      .forward = forward,
                      .backward = backward,
                      .workspace = all_workspaces,
                      .refuse = refuse_oversized_grid,
                      .subtracts_max = false,
                      .takes = general_problem | usual_options | Features::bias_gradient |
                               Features::lorentz | Features::centroid};

}  // namespace
}  // namespace flash::naive::more_options
