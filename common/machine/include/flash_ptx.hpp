// What run/ptx.py turns inline PTX into.
#pragma once

#include "common/machine/cpu/float16.hpp"
#include "common/machine/cpu/wgmma.hpp"

namespace flash::plain {

/// A register's content as another type of its size, or an integer of another one.
template <class T, class From>
FLASH_INLINE T as(const From& from) {
  if constexpr (std::is_same_v<T, From>) {
    return from;
  } else if constexpr (sizeof(T) == sizeof(From)) {
    return __builtin_bit_cast(T, from);
  } else if constexpr (std::is_pointer_v<From>) {
    return static_cast<T>(reinterpret_cast<std::uintptr_t>(from));
  } else if constexpr ((std::is_integral_v<From> || std::is_enum_v<From>)&&std::is_integral_v<T>) {
    return static_cast<T>(from);
  } else if constexpr (std::is_arithmetic_v<From> && std::is_arithmetic_v<T>) {
    return static_cast<T>(from);
  } else {
    T value{};
    __builtin_memcpy(static_cast<void*>(&value), &from, sizeof(T) < sizeof(From) ? sizeof(T) : sizeof(From));
    return value;
  }
}
template <class To, class From>
FLASH_INLINE void set(To& to, const From& from) {
  to = as<std::remove_volatile_t<To>>(from);
}
struct Nowhere {};
template <class From>
void set(Nowhere, const From&) {}
inline Nowhere nowhere() { return {}; }

/// Memory by a pointer, by its number, or by a 32-bit address of shared memory.
struct Address {
  std::byte* at;
  template <class T>
  operator T*() const {
    return reinterpret_cast<T*>(at);
  }
  Address operator+(int bytes) const { return {at + bytes}; }
  Address operator-(int bytes) const { return {at - bytes}; }
};
template <class T>
Address address(const T& where) {
  if constexpr (sizeof(T) == 4) return {static_cast<std::byte*>(shared_pointer(as<unsigned>(where)))};
  return {reinterpret_cast<std::byte*>(as<std::uintptr_t>(where))};
}
inline Mbarrier& mbarrier(Address where) { return *static_cast<Mbarrier*>(where); }

template <class T, int N>
struct alignas(sizeof(T) * N) [[gnu::may_alias]] Several {
  T at[N];
};
enum class Order { weak, relaxed, acquire };
template <class T, int N, Order Of>
FLASH_INLINE Several<T, N> load(Address from) {
  if constexpr (Of != Order::weak && sizeof(T) == 4 && N == 1) {
    int* const at = from;
    if (Of == Order::acquire) return {as<T>(load_acquire(at))};
    begin_atomic(at, false, false);
    const int value = __atomic_load_n(at, __ATOMIC_RELAXED);
    end_atomic(at);
    return {as<T>(value)};
  } else {
    return *static_cast<const Several<T, N>*>(from);
  }
}
template <class T, int N, bool Atomic, class... V>
FLASH_INLINE void store(Address to, V... values) {
  if constexpr (Atomic && sizeof(T) == 4 && N == 1) {
    atomicExch(static_cast<unsigned*>(to), as<unsigned>(values...));
  } else {
    *static_cast<Several<T, N>*>(to) = {{static_cast<T>(values)...}};
  }
}

// ---- arithmetic ------------------------------------------------------------------------------------------------------------------------

template <class T, class... From>
T pack(const From&... parts) {
  std::uint64_t bits = 0;
  int shift = 0;
  ((bits |= static_cast<std::uint64_t>(to_register(parts)) << shift, shift += 8 * static_cast<int>(sizeof parts)), ...);
  return as<T>(bits);
}
template <class From, class... To>
void unpack(const From& from, To&... parts) {
  std::uint64_t bits = to_register(from);
  ((set(parts, from_register<To>(bits)), bits = sizeof(To) < 8 ? bits >> 8 * (sizeof(To) % 8) : 0), ...);
}
template <class T>
T shl(T x, unsigned by) {
  return by >= 8 * sizeof(T) ? T{} : static_cast<T>(static_cast<std::make_unsigned_t<T>>(x) << by);
}
template <class T>
T shr(T x, unsigned by) {
  return static_cast<T>(x >> (by >= 8 * sizeof(T) ? 8 * sizeof(T) - 1 : by) >> (by >= 8 * sizeof(T) && !std::is_signed_v<T>));
}
template <class T>
T fma_(T a, T b, T c) {
  if constexpr (requires(T v) { v.y; }) {
    return {fma_(a.x, b.x, c.x), fma_(a.y, b.y, c.y)};
  } else if constexpr (std::is_same_v<T, double>) {
    return std::fma(a, b, c);
  } else {
    return fmaf(float(a), float(b), float(c));
  }
}
template <class T>
T min_(T a, T b) {
  if constexpr (requires(T v) { v.y; })
    return {min_(a.x, b.x), min_(a.y, b.y)};
  else if constexpr (std::is_integral_v<T>)
    return b < a ? b : a;
  else
    return fminf(float(a), float(b));
}
template <class T>
T max_(T a, T b) {
  if constexpr (requires(T v) { v.y; })
    return {max_(a.x, b.x), max_(a.y, b.y)};
  else if constexpr (std::is_integral_v<T>)
    return a < b ? b : a;
  else
    return fmaxf(float(a), float(b));
}
template <class T>
T abs_(T x) {
  return x < T{} ? -x : x;
}
inline float sqrt_(float x) { return sqrtf(x); }
inline float sin_(float x) { return sinf(x); }
inline float cos_(float x) { return cosf(x); }
inline float lg2(float x) { return log2f(x); }
inline float ex2(float x) { return exp2_approx(x); }
inline float tanh_(float x) { return tanh_approx(x); }
inline __half2 ex2(__half2 x) { return {exp2_approx(x.x), exp2_approx(x.y)}; }
inline __half ex2(__half x) { return exp2_approx(x); }
template <class T>
int clz(T x) {
  return x == 0           ? static_cast<int>(8 * sizeof(T))
         : sizeof(T) == 8 ? __builtin_clzll(x)
                          : __builtin_clz(static_cast<unsigned>(x));
}
template <class To, class From>
To convert(From x, const char* rounding) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    const double whole = rounding[1] == 'z'   ? std::trunc(x)
                         : rounding[1] == 'm' ? std::floor(x)
                         : rounding[1] == 'p' ? std::ceil(x)
                                              : std::rint(x);
    const auto low = static_cast<double>(std::numeric_limits<To>::lowest()),
               high = static_cast<double>(std::numeric_limits<To>::max());
    return whole != whole  ? To{}
           : whole <= low  ? std::numeric_limits<To>::lowest()
           : whole >= high ? std::numeric_limits<To>::max()
                           : static_cast<To>(whole);
  } else if constexpr (std::is_arithmetic_v<From>) {
    return static_cast<To>(x);
  } else {
    return static_cast<To>(float(x));
  }
}
inline unsigned lop3(unsigned a, unsigned b, unsigned c, unsigned table) {
  unsigned result = 0;
  for (unsigned i = 0; i < 32; ++i) result |= (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i;
  return result;
}
inline unsigned prmt(unsigned a, unsigned b, unsigned select) { return __byte_perm(a, b, select); }
inline unsigned bfe(unsigned a, unsigned at, unsigned bits) { return bits == 0 ? 0 : shr(shl(a, 32 - bits - at), 32 - bits); }
inline int bfe(int a, int at, int bits) {
  return bits == 0 ? 0 : shr(static_cast<int>(static_cast<unsigned>(a) << (32 - bits - at)), 32 - bits);
}
inline unsigned bfi(unsigned a, unsigned b, unsigned at, unsigned bits) {
  const unsigned mask = (bits >= 32 ? ~0u : (1u << bits) - 1) << at;
  return (b & ~mask) | (a << at & mask);
}
inline unsigned shf_l(unsigned lo, unsigned hi, unsigned by) { return __funnelshift_l(lo, hi, by); }
inline unsigned shf_r(unsigned lo, unsigned hi, unsigned by) { return __funnelshift_r(lo, hi, by); }

// ---- threads ---------------------------------------------------------------------------------------------------------------------------

inline unsigned thread_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
inline unsigned special_laneid() { return thread_rank() % 32; }
inline unsigned special_warpid() { return thread_rank() / 32; }
inline unsigned special_nwarpid() { return (blockDim.x * blockDim.y * blockDim.z + 31) / 32; }
inline unsigned special_smid() { return blockIdx.x % 132; }
inline unsigned special_nsmid() { return 132; }
inline unsigned special_clusterid() { return blockIdx.x; }
inline unsigned special_cluster_ctarank() { return 0; }
inline unsigned special_lanemask_eq() { return 1u << special_laneid(); }
inline unsigned special_lanemask_lt() { return special_lanemask_eq() - 1; }
inline unsigned special_lanemask_le() { return special_lanemask_eq() * 2 - 1; }
inline unsigned special_lanemask_gt() { return ~special_lanemask_le(); }
inline unsigned special_lanemask_ge() { return ~special_lanemask_lt(); }
inline std::uint64_t special_clock() { return static_cast<std::uint64_t>(ticks()); }
inline std::uint64_t special_clock64() { return special_clock(); }
inline std::uint64_t special_globaltimer() { return special_clock(); }
unsigned special_dynamic_smem_size();

// The last two operands of shfl: the mask of segments and the bound, and the lanes that take part.
template <class T>
T shfl_idx(T v, unsigned lane, unsigned clamp, unsigned mask, Site site = Site::here()) {
  return __shfl_sync(mask, v, static_cast<int>(lane), 32 - static_cast<int>(clamp >> 8 & 31), site);
}
template <class T>
T shfl_up(T v, unsigned by, unsigned clamp, unsigned mask, Site site = Site::here()) {
  return __shfl_up_sync(mask, v, by, 32 - static_cast<int>(clamp >> 8 & 31), site);
}
template <class T>
T shfl_down(T v, unsigned by, unsigned clamp, unsigned mask, Site site = Site::here()) {
  return __shfl_down_sync(mask, v, by, 32 - static_cast<int>(clamp >> 8 & 31), site);
}
template <class T>
T shfl_bfly(T v, unsigned lanes, unsigned clamp, unsigned mask, Site site = Site::here()) {
  return __shfl_xor_sync(mask, v, static_cast<int>(lanes), 32 - static_cast<int>(clamp >> 8 & 31), site);
}
inline void block_barrier(int id, Site site = Site::here()) {
  if (id == 0) return __syncthreads(site);
  named_barrier_sync(id, static_cast<int>(blockDim.x * blockDim.y * blockDim.z), site);
}

// ---- copies and products -------------------------------------------------------------------------------------------------------------------

inline void cp_async(void* to, const void* from, int bytes, int from_bytes, Site site = Site::here()) {
  bytes == 16  ? cp_async_zfill<16>(to, from, from_bytes, site)
  : bytes == 8 ? cp_async_zfill<8>(to, from, from_bytes, site)
               : cp_async_zfill<4>(to, from, from_bytes, site);
}
inline void cp_async_wait(int newest) {
  AsyncCopy copy;
  while (take_landing_copy(newest, copy)) land(copy);
}
/// Part `rank` of `count` of a copy to shared memory, in a group of cp.async of its own.
template <class To, class From, class Size>
FLASH_INLINE void copy_async(To* to, const From* from, Size size, unsigned rank, unsigned count, Site site = Site::here(),
                             bool own_group = true) {
  auto* const a = reinterpret_cast<char*>(to);
  const auto* const b = reinterpret_cast<const char*>(from);
  const std::size_t bytes = static_cast<std::size_t>(size);
  if constexpr (requires { Size::align; }) {  // cuda::aligned_size_t promises it
    for (const char* const at : {static_cast<const char*>(a), b}) {
      if (reinterpret_cast<std::uintptr_t>(at) % Size::align != 0)
        fail_misaligned("memcpy_async's source or target", at, Size::align, site);
    }
  }
  const auto together =
      static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b) | bytes);
  const std::size_t step = together % 16 == 0 ? 16 : together % 8 == 0 ? 8 : together % 4 == 0 ? 4 : 1;
  for (std::size_t i = rank * step; i < bytes; i += count * step) {
    if (step == 1 || shared_address_of(a) == not_shared)
      a[i] = b[i];
    else
      cp_async(a + i, b + i, static_cast<int>(step), static_cast<int>(step), site);
  }
  if (own_group) cp_async_commit();
}
inline void cp_async_arrive(Address barrier, Site site = Site::here()) {
  cp_async_wait_all();
  flash::mbarrier_arrive(mbarrier(barrier), site);
}
/// fp16 sums: the products are added in fp32 and rounded once.
template <int A, int B>
void mma_f16(unsigned (&d)[2], const unsigned (&a)[A], const unsigned (&b)[B], const unsigned (&c)[2],
             Site site = Site::here()) {
  float sums[4];
  for (int i = 0; i < 4; ++i) sums[i] = half_to_float(static_cast<std::uint16_t>(c[i / 2] >> 16 * (i % 2)));
  if constexpr (A == 4)
    mma_m16n8k16_f16(sums, a, b, sums, site);
  else
    mma_m16n8k8_f16(sums, a, b, sums, site);
  for (int i = 0; i < 2; ++i) d[i] = pack_f16(sums[2 * i], sums[2 * i + 1]);
}
template <int N, bool Trans>
void stmatrix(void* row, const unsigned (&r)[N], Site site = Site::here()) {
  if constexpr (N == 4 && !Trans) return stmatrix_x4(row, r, site);
  unsupported("stmatrix other than x4 without .trans", site);
}

// ---- Hopper --------------------------------------------------------------------------------------------------------------------------------

inline void mbarrier_arrive(Mbarrier& barrier, int count, Site site = Site::here()) {
  for (int i = 0; i < count; ++i) flash::mbarrier_arrive(barrier, site);
}
/// The tensor map that cuTensorMapEncodeTiled has put at an address.
const TensorMap& map_at(const void*, Site);
template <class T>
const TensorMap& map(const T& where, Site site = Site::here()) {
  return map_at(reinterpret_cast<const void*>(as<std::uintptr_t>(where)), site);
}
struct Place {
  int at[5] = {};
};
inline void tma_load(void* to, const TensorMap& map, const Place& place, Mbarrier& barrier, Site site = Site::here()) {
  flash::tma_load(to, map, barrier, place.at[0], place.at[1], place.at[2], place.at[3], site);
}
inline void tma_store(const TensorMap& map, const Place& place, const void* from, Site site = Site::here()) {
  flash::tma_store(map, from, place.at[0], place.at[1], place.at[2], place.at[3], site);
}
inline void wgmma_wait(int newest, Site site = Site::here()) { wgmma_wait_for(newest, nullptr, 0, site); }
/// The registers of an operand, as an array.
inline const unsigned* adjacent(const unsigned* const (&registers)[4], Site site = Site::here()) {
  for (int i = 0; i < 4; ++i) {
    if (registers[i] != registers[0] + i) unsupported("wgmma whose A in registers does not lie in one array, in order", site);
  }
  return registers[0];
}
/// A in registers, or in shared memory by its descriptor.
template <int N>
void wgmma(MmaType type, float* const (&d)[N / 2], const unsigned* a_registers, std::uint64_t a, std::uint64_t b,
           bool accumulate, int scale_a, int scale_b, int a_trans, int b_trans, Site site = Site::here()) {
  for (int i = 0; i < N / 2; ++i) {
    if (d[i] != d[0] + i) unsupported("wgmma whose accumulators do not lie in one array, in order", site);
  }
  if (scale_a != 1 || scale_b != 1) unsupported("wgmma with negated operands", site);
  const auto operand = [](std::uint64_t bits) {
    return WgmmaOperand<Major::k>{static_cast<unsigned>(bits), static_cast<unsigned>(bits >> 32)};
  };
  wgmma_issue({type, N, accumulate, a_trans != 0 ? Major::mn : Major::k, b_trans != 0 ? Major::mn : Major::k, operand(a),
               operand(b), a_registers, d[0]},
              site);
}

}  // namespace flash::plain
