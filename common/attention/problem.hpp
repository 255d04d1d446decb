// The problem that every stage solves:
//
//     O = softmax(scale * Q K^T + bias, masked) V        and dQ, dK, dV for a given dO
//
// Sizes carry the letters of the FlashAttention papers. A kernel takes a Problem by value, or an OptionsProblem if it knows windows and softcaps;
// the host has a FullProblem. This header is plain C++: the host compiler and nvcc both read it.
#pragma once

#include "common/machine/types.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace flash {

// Enumerations, and their values on the command line and in JSON, in the same order.
enum class Pass { forward, backward };
constexpr auto spellings(Pass) { return std::array{"forward", "backward"}; }
constexpr auto spellings(Dtype) { return std::array{"fp32", "fp16", "bf16"}; }
enum class Layout { bhnd, bnhd, qkv, kv };
constexpr auto spellings(Layout) { return std::array{"bhnd", "bnhd", "qkv", "kv"}; }
enum class BiasKind { none, vector, matrix, alibi };
constexpr auto spellings(BiasKind) { return std::array{"none", "vector", "matrix", "alibi"}; }
enum class Score { dot, lorentz };
constexpr auto spellings(Score) { return std::array{"dot", "lorentz"}; }
enum class Values { tangent, centroid };
constexpr auto spellings(Values) { return std::array{"tangent", "centroid"}; }
enum class InputKind { normal, ones, identity, ramp, large };  ///< --help says what each gives
constexpr auto spellings(InputKind) { return std::array{"normal", "ones", "identity", "ramp", "large"}; }

constexpr std::int64_t largest_size = std::int64_t{1} << 30;  ///< keeps i + Nk, and i + Nk - Nq + right, within an int
constexpr std::int64_t largest_head_dim = 256;                ///< of any stage; see Variant::max_head_dim

/// Shape and options as all kernels know them, whose machine code a further member would change. They trust what make_problem() has accepted.
struct Problem {
  int B = 1;     ///< batch
  int H = 2;     ///< query heads
  int Hkv = 2;   ///< key/value heads; H is a multiple of it (MHA, GQA, MQA)
  int Nq = 128;  ///< queries
  int Nk = 128;  ///< keys
  int d = 64;    ///< head dimension, at most 256; most stages take 128 (Variant::max_head_dim)
  float scale = 0.125f;
  bool causal = false;
  BiasKind bias = BiasKind::none;
  bool bias_per_batch = false;  ///< the bias has B entries along the batch, else 1
  bool bias_per_head = true;    ///< the bias has H entries along the heads, else 1
  Dtype dtype = Dtype::fp32;
  Layout layout = Layout::bhnd;

  /// The key/value head that query head h reads.
  FLASH_HOST_DEVICE int kv_head(int h) const { return h / (H / Hkv); }

  /// Query heads that share one key/value head.
  FLASH_HOST_DEVICE int group_size() const { return H / Hkv; }

  /// Does query i see key j? The causal mask is aligned at the bottom right: the last query sees the last key.
  FLASH_HOST_DEVICE bool visible(int i, int j) const { return !causal || j <= i + Nk - Nq; }

  /// Query i sees exactly the keys [0, visible_keys(i)).
  FLASH_HOST_DEVICE int visible_keys(int i) const {
    if (!causal) return Nk;
    const int count = i + Nk - Nq + 1;
    return count < 0 ? 0 : (count > Nk ? Nk : count);
  }

  /// Query i sees exactly the keys [first_key(i), end_key(i)), key j is seen by exactly the queries [first_query(j), end_query(j)). Both
  /// ends of either grow with i or j. `tile`: rounds down to a multiple of it.
  FLASH_HOST_DEVICE int first_key(int, int = 1) const { return 0; }
  FLASH_HOST_DEVICE int end_key(int i) const { return visible_keys(i); }
  FLASH_HOST_DEVICE int first_query(int j, int tile = 1) const {
    if (!causal) return 0;
    const int first = j - (Nk - Nq);
    return (first < 0 ? 0 : first) / tile * tile;
  }
  FLASH_HOST_DEVICE int end_query(int) const { return Nq; }
};

/// A sliding window. Query i stands at key i + Nk - Nq, as for the causal mask, and sees the keys from `left` before that one to
/// `right` after it, both included: {0, 0} is the diagonal. open: no bound on that side.
struct Window {
  static constexpr int open = -1;
  int left = open, right = open;
  friend bool operator==(const Window&, const Window&) = default;
};

/// A problem with its options. A kernel that knows them is compiled twice, for this type and for Problem, so that a run without them
/// executes the code that it always did.
struct OptionsProblem : Problem {
  Window window;
  float softcap = 0.0f;  ///< c > 0: scaled scores s become c tanh(s / c), before the bias and the mask; 0: they stay

  // In place of the functions of the same name.
  FLASH_HOST_DEVICE int first_key(int i, int tile = 1) const {
    return window.left == Window::open ? 0 : clamp(i + Nk - Nq - window.left, Nk) / tile * tile;
  }
  FLASH_HOST_DEVICE int end_key(int i) const { return right() == Window::open ? Nk : clamp(i + Nk - Nq + 1 + right(), Nk); }
  FLASH_HOST_DEVICE int first_query(int j, int tile = 1) const {
    return right() == Window::open ? 0 : clamp(j - Nk + Nq - right(), Nq) / tile * tile;
  }
  FLASH_HOST_DEVICE int end_query(int j) const {
    return window.left == Window::open ? Nq : clamp(j - Nk + Nq + window.left + 1, Nq);
  }
  FLASH_HOST_DEVICE bool visible(int i, int j) const { return first_key(i) <= j && j < end_key(i); }
  /// The same without a clamp: query i sees the keys j < Nk for which j - i is from lowest() to highest().
  FLASH_HOST_DEVICE int lowest() const { return window.left == Window::open ? -0x7fffffff : Nk - Nq - window.left; }
  FLASH_HOST_DEVICE int highest() const { return right() == Window::open ? 0x7fffffff : Nk - Nq + right(); }
  int visible_keys(int) const = delete;  ///< not all keys before end_key() are visible

 private:
  /// The causal mask is a window that ends at the query's own key.
  FLASH_HOST_DEVICE int right() const { return causal ? 0 : window.right; }
  FLASH_HOST_DEVICE static int clamp(int n, int most) { return n < 0 ? 0 : (n > most ? most : n); }
};

/// Dropout as the user asks for it: each weight becomes 0 with this probability, and 1 / (1 - p) times as large otherwise.
struct Dropout {
  float probability = 0.0f;  ///< 0: none
  std::uint64_t seed = 0;
};
struct DropMask;  // dropout.hpp

/// A ragged batch: sequences of any length, empty ones included, one after another in tensors of batch 1. Sequence s has the queries
/// [queries[s], queries[s+1]) and the keys [keys[s], keys[s+1]). Such offsets are what libraries call cu_seqlens.
struct Sequences {
  std::vector<int> queries, keys;  ///< 0, ascending, the length of the tensor; empty: the batch is not ragged
  bool empty() const { return queries.empty(); }
  int count() const { return empty() ? 0 : static_cast<int>(queries.size()) - 1; }
  friend bool operator==(const Sequences&, const Sequences&) = default;
};

/// A problem as the host and the reference see it. In a ragged batch Nq and Nk count the rows of all sequences, and i and j are rows of
/// the packed tensors; a query sees keys of its own sequence only. Kernels enter one sequence, and then see an OptionsProblem.
struct FullProblem : OptionsProblem {
  Sequences sequences;
  Dropout dropout = {};      ///< of the weights, after the softmax
  Score score = Score::dot;  ///< lorentz: -scale times the distance of q and k on the hyperboloid, in place of scale q . k
  Values values = Values::tangent;  ///< centroid: V's rows are points of the hyperboloid, too, and O is their weighted centroid
  bool bias_gradient = false;       ///< a backward pass also computes the gradient of the bias, which is a matrix
  InputKind input = InputKind::normal;  ///< which Q, K, V, and with `seed` which random ones, it is solved for
  std::uint64_t seed = 1;

  /// Within general_problem: a kernel for a Problem computes the same.
  bool is_general() const;

  /// The attention of one sequence as a problem of its own, in which Nq or Nk may be 0.
  OptionsProblem sequence(int s) const;

  /// The sequence of query i, and where its rows begin. A batch that is not ragged is one sequence.
  struct Place {
    int number, query, key;
    OptionsProblem problem;
  };
  Place place_of(int i) const;

  /// Query i sees the keys [first, end). It stands at the key `own`, which the causal mask, windows and ALiBi count from.
  struct Keys {
    int first, end, own;
    bool contain(int j) const { return first <= j && j < end; }
    int count() const { return first < end ? end - first : 0; }
  };
  Keys keys_of(int i) const;

  /// (9.11)  The factor of the weight that query i gives key j of its sequence.
  float drop_factor(const DropMask&, int b, int h, int i, int j) const;

 private:  // of one sequence, place_of(i).problem, alone
  using OptionsProblem::first_key, OptionsProblem::end_key, OptionsProblem::visible, OptionsProblem::first_query,
      OptionsProblem::end_query;
};

/// 1/sqrt(d): keeps the variance of q.k at 1 when the components of q and k have variance 1.
float default_scale(int d);

/// A set of what a problem may have beyond one length, a key/value head for each query head, and rows in the order (B,H,N,d). A kernel that did
/// not know one of these would compute something else without a word, so each variant says what it knows (Variant::takes,
/// `plain_problem | Features::window`), and is refused the rest.
enum class Features : unsigned {
  none = 0,
  causal = 1u << 0,
  vector_bias = 1u << 1,
  matrix_bias = 1u << 2,
  alibi = 1u << 3,
  shared_heads = 1u << 4,     // Hkv < H
  unequal_lengths = 1u << 5,  // Nq != Nk
  bnhd = 1u << 6,
  packed_qkv = 1u << 7,
  packed_kv = 1u << 8,
  window = 1u << 9,
  softcap = 1u << 10,
  lengths = 1u << 11,
  dropout = 1u << 12,
  bias_gradient = 1u << 13,
  lorentz = 1u << 14,
  centroid = 1u << 15,
  any_scale = 1u << 16,  // not positive, or so large that its product with log2 e overflows
};

constexpr Features operator|(Features a, Features b) {
  return static_cast<Features>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr Features operator&(Features a, Features b) {
  return static_cast<Features>(static_cast<unsigned>(a) & static_cast<unsigned>(b));
}
constexpr Features operator~(Features a) { return static_cast<Features>(~static_cast<unsigned>(a)); }

/// The plain problem, which all kernels know: softmax(scale Q K^T, causal or not) V with a scale above 0. It stays as it is: a kernel says
/// itself what else it knows.
constexpr Features plain_problem = Features::causal | Features::shared_heads | Features::unequal_lengths | Features::bnhd |
                                   Features::packed_qkv | Features::packed_kv;

/// All that a Problem can ask for.
constexpr Features general_problem =
    plain_problem | Features::vector_bias | Features::matrix_bias | Features::alibi | Features::any_scale;

/// What the kernels for options of stages 01, 06, 07 and 08 know besides. It stays as it is, too: the claim is theirs.
constexpr Features usual_options = Features::window | Features::softcap | Features::lengths | Features::dropout;

/// What the problem has of them.
Features features_of(const FullProblem&);

}  // namespace flash
