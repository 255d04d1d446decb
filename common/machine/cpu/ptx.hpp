// ldmatrix, mma and cp.async on the CPU, lane by lane: the twins of common/machine/ptx.cuh, which explains them and their fragments.
#pragma once

#include "common/machine/cpu/atomic.hpp"
#include "common/machine/cpu/element_ref.hpp"
#include "common/machine/cpu/site.hpp"
#include "common/machine/cpu/types.hpp"
#include "common/machine/isa/float16.hpp"

#include <cmath>
#include <cstdint>

namespace flash {
inline namespace simt {

// Memory is read and written here, in the kernel, through types that may alias all others: so the sanitizers see it.
struct [[gnu::may_alias]] Word16 {
  std::uint16_t bits;
};
struct [[gnu::may_alias]] Word32 {
  std::uint32_t bits;
};

// ---- ldmatrix ------------------------------------------------------------------------------------------------------------------

/// One lane's part in an ldmatrix of `count` matrices.
struct LdmatrixLane {
  int count;
  bool trans;
  const void* row;             ///< in: the row that this lane points to
  const std::byte* source[8];  ///< out: the words, or with trans the pairs of halves, that this lane receives
};

/// Meets the other lanes and finds out what this one receives.
void ldmatrix(LdmatrixLane&, Site);

template <int Count, bool Trans>
void ldmatrix_as(unsigned (&r)[Count], const void* row, Site site) {
  LdmatrixLane lane{Count, Trans, row, {}};
  ldmatrix(lane, site);
  for (int m = 0; m < Count; ++m) {
    if constexpr (Trans) {
      const unsigned low = reinterpret_cast<const Word16*>(lane.source[2 * m])->bits;
      const unsigned high = reinterpret_cast<const Word16*>(lane.source[2 * m + 1])->bits;
      r[m] = low | high << 16;
    } else {
      r[m] = reinterpret_cast<const Word32*>(lane.source[m])->bits;
    }
  }
}

inline void ldmatrix_x1(unsigned (&r)[1], const void* row, Site site = Site::here()) { ldmatrix_as<1, false>(r, row, site); }
inline void ldmatrix_x2(unsigned (&r)[2], const void* row, Site site = Site::here()) { ldmatrix_as<2, false>(r, row, site); }
inline void ldmatrix_x4(unsigned (&r)[4], const void* row, Site site = Site::here()) { ldmatrix_as<4, false>(r, row, site); }
inline void ldmatrix_x1_trans(unsigned (&r)[1], const void* row, Site site = Site::here()) {
  ldmatrix_as<1, true>(r, row, site);
}
inline void ldmatrix_x2_trans(unsigned (&r)[2], const void* row, Site site = Site::here()) {
  ldmatrix_as<2, true>(r, row, site);
}
inline void ldmatrix_x4_trans(unsigned (&r)[4], const void* row, Site site = Site::here()) {
  ldmatrix_as<4, true>(r, row, site);
}

// ---- mma -----------------------------------------------------------------------------------------------------------------------

enum class MmaType : std::uint8_t { f16, bf16 };

/// One lane's registers in D = A B + C, [16, depth] x [depth, 8].
struct MmaLane {
  MmaType type;
  int depth;
  float* d;
  const unsigned* a;
  const unsigned* b;
  const float* c;
};

/// Meets the other lanes; the products are summed in double and rounded once.
void mma(MmaLane&, Site);

#define FLASH_MMA(depth, type)                                                                                       \
  inline void mma_m16n8k##depth##_##type(float(&d)[4], const unsigned(&a)[depth / 4], const unsigned(&b)[depth / 8], \
                                         const float(&c)[4], Site site = Site::here()) {                             \
    MmaLane lane{MmaType::type, depth, d, a, b, c};                                                                  \
    mma(lane, site);                                                                                                 \
  }
FLASH_MMA(8, f16)
FLASH_MMA(8, bf16)
FLASH_MMA(16, f16)
FLASH_MMA(16, bf16)

// ---- two numbers of 16 bits in a register ------------------------------------------------------------------------------------------

inline unsigned pack_f16(float low, float high) { return float_to_half(low) | unsigned{float_to_half(high)} << 16; }
inline unsigned pack_bf16(float low, float high) { return float_to_bfloat16(low) | unsigned{float_to_bfloat16(high)} << 16; }

// ---- keeping rare work out of the common path ----------------------------------------------------------------------------------

template <class Integer>
Integer opaque(Integer number) {
  return number;
}

// ---- ex2 -----------------------------------------------------------------------------------------------------------------------

inline float exp2_approx(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126f ? 0.0f : y;
}

// ---- tanh -----------------------------------------------------------------------------------------------------------------------

/// Rounded to 11 bits: off by up to 2^-11 of the result, as the instruction may be. The GPU's results differ within that.
inline float tanh_approx(float x) {
  int exponent;
  const float mantissa = std::frexp(std::tanh(x), &exponent);
  return std::isfinite(mantissa) ? std::ldexp(std::nearbyint(mantissa * 0x1p11f), exponent - 11) : mantissa;
}

// ---- four neighbours ----------------------------------------------------------------------------------------------------------

/// Refuses an address that is not aligned to so many numbers, or whose row ends before the last of them.
void check_together(const char* name, int count, const float* address, int left, Site);

inline void store4(GlobalPointer<float> to, const float4& values, Site site = Site::here()) {
  check_together("store4", 4, to.data, to.left, site);
  count_written(to.id, to.data, sizeof values, to.site);
  *reinterpret_cast<float4*>(to.data) = values;
}

inline void atomic_add4(GlobalPointer<float> to, const float4& values, Site site = Site::here()) {
  check_together("atomic_add4", 4, to.data, to.left, site);
  count_read_and_written(to.id, to.data, sizeof values, to.site);
  atomicAdd(to.data, values.x);
  atomicAdd(to.data + 1, values.y);
  atomicAdd(to.data + 2, values.z);
  atomicAdd(to.data + 3, values.w);
}

// ---- acquire and release ----------------------------------------------------------------------------------------------------

// For whoever looks for races: what the thread did before the release lies before what follows the acquire.
void finish_acquire(const void* address);
void begin_release(void* address);
/// Lets other operating-system threads run, and the blocks on them.
void yield();

inline int load_acquire(const int* address) {
  const int value = __atomic_load_n(address, __ATOMIC_ACQUIRE);
  finish_acquire(address);
  return value;
}
inline void add_release(int* address, int value) {
  begin_atomic(address);
  begin_release(address);
  __atomic_fetch_add(address, value, __ATOMIC_RELEASE);
}
inline void add_release(GlobalPointer<int> address, int value) { add_release(count_atomic(address), value); }
inline void wait_until_equal(const int* address, int value) {
  while (load_acquire(address) != value) yield();
}

// ---- cp.async ------------------------------------------------------------------------------------------------------------------

struct AsyncCopy {
  void* to;          ///< shared memory
  const void* from;  ///< global memory
  int bytes;         ///< written: 4, 8 or 16
  int from_bytes;    ///< read; the rest is filled with zeros
};

/// Checks a copy and notes it as issued; false if the target GPU has no cp.async (sm_75), where it has to land at once.
bool issue_async_copy(const AsyncCopy&, Site);
/// Hands out the oldest copy that has to land for all but the `newest` youngest groups to be complete; false if there is none.
bool take_landing_copy(int newest, AsyncCopy&, bool committed = false);
/// The same for every copy, in a group or not.
bool take_any_copy(AsyncCopy&, bool committed = false);
/// For a pipeline of the block: copies lie before the commit. A barrier has to follow, and orders no more than threads have released.
void land_for_block(int newest);
void close_copy_group();
[[noreturn]] void fail_copy_leaves_row(int from_bytes, std::size_t left_bytes, Site);

/// For who watches: these bytes are not written yet.
void forget_writes(const void* address, std::size_t bytes);

/// What a copy shows until it is waited for.
inline void poison_target(const AsyncCopy& copy) {
  for (int i = 0; i < copy.bytes / 4; ++i) static_cast<Word32*>(copy.to)[i].bits = 0xFFFFFFFFu;
  forget_writes(copy.to, static_cast<std::size_t>(copy.bytes));
}
inline void land(const AsyncCopy& copy) {
  for (int i = 0; i < copy.bytes / 2; ++i) {
    static_cast<Word16*>(copy.to)[i].bits =
        2 * i < copy.from_bytes ? static_cast<const Word16*>(copy.from)[i].bits : std::uint16_t{0};
  }
}

template <int Bytes>
void cp_async_zfill(void* to, const void* from, int from_bytes, Site site = Site::here()) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async copies 4, 8 or 16 bytes");
  const AsyncCopy copy{to, from, Bytes, from_bytes};
  if (issue_async_copy(copy, site)) {
    poison_target(copy);
  } else {
    land(copy);
  }
}
template <int Bytes, class T>
void cp_async_zfill(void* to, GlobalPointer<T> from, int from_bytes, Site site = Site::here()) {
  const std::size_t left_bytes = static_cast<std::size_t>(from.left) * sizeof(T);
  if (from_bytes > 0 && static_cast<std::size_t>(from_bytes) > left_bytes) fail_copy_leaves_row(from_bytes, left_bytes, site);
  count_read(from.id, from.data, static_cast<std::size_t>(from_bytes), site);
  cp_async_zfill<Bytes>(to, static_cast<const void*>(from.data), from_bytes, site);
}
template <int Bytes>
void cp_async(void* to, const void* from, Site site = Site::here()) {
  cp_async_zfill<Bytes>(to, from, Bytes, site);
}
template <int Bytes, class T>
void cp_async(void* to, GlobalPointer<T> from, Site site = Site::here()) {
  cp_async_zfill<Bytes>(to, from, Bytes, site);
}

inline void cp_async_commit() { close_copy_group(); }

template <int Newest>
void cp_async_wait() {
  AsyncCopy copy;
  while (take_landing_copy(Newest, copy)) land(copy);
}
inline void cp_async_wait_all() {
  AsyncCopy copy;
  while (take_any_copy(copy)) land(copy);
}

}  // namespace simt
}  // namespace flash
