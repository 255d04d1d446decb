// The problem that every stage solves:
//
//     O = softmax(scale * Q K^T + bias, masked) V        and dQ, dK, dV for a given dO
//
// Sizes carry the letters of the FlashAttention papers. This header is plain C++: the host compiler and nvcc both read it.
#pragma once

#include <cstdint>
#include <string>

#ifdef __CUDACC__
#define FLASH_HOST_DEVICE __host__ __device__
#else
#define FLASH_HOST_DEVICE
#endif

namespace flash {

enum class Pass { forward, backward };
enum class Dtype { fp32, fp16, bf16 };
enum class Layout { bhnd, bnhd, qkv, kv };
enum class BiasKind { none, vector, matrix, alibi };

/// Shape and options of one attention problem. Valid once set_sizes() has accepted its sizes; kernels trust it.
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
};

/// Problem sizes as a user may give them, before anything is known about them. 0 in `kv_heads` means: as many as `heads`.
struct RequestedSizes {
  std::int64_t batch = 1, heads = 2, kv_heads = 0, seq_q = 128, seq_k = 128, head_dim = 64;
};

/// Turns requested sizes into the sizes of `problem`, whose layout is set already. Returns "" or, leaving `problem` as it was,
/// one line that says what was given and what is allowed: every size in 1..2^30, head_dim <= 256, heads a multiple of kv_heads,
/// packed QKV only with Nq == Nk and Hkv == H, every tensor and the scores [B, H, Nq, Nk] below 2^62 bytes.
std::string set_sizes(Problem& problem, const RequestedSizes& sizes);

/// 1/sqrt(d): keeps the variance of q.k at 1 when the components of q and k have variance 1.
float default_scale(int d);

const char* to_string(Pass);
const char* to_string(Dtype);
const char* to_string(Layout);
const char* to_string(BiasKind);

/// One line for reports and messages: "B=1 H=2 Hkv=2 Nq=128 Nk=128 d=64 causal fp32 bhnd bias=none". A bias comes with its
/// shape, a scale only if it is not the default.
std::string describe(const Problem&);

/// Bytes of one element.
FLASH_HOST_DEVICE constexpr std::int64_t size_of(Dtype dtype) { return dtype == Dtype::fp32 ? 4 : 2; }

}  // namespace flash
