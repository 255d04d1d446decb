// The functions of kernels, global as in CUDA: the machine's own, and those that only plain CUDA files use.
#pragma once

using flash::threadIdx, flash::blockIdx, flash::blockDim, flash::gridDim, flash::warpSize;
using flash::__syncthreads, flash::__syncthreads_and, flash::__syncthreads_count, flash::__syncthreads_or, flash::__syncwarp;
using flash::__threadfence, flash::__threadfence_block, flash::__threadfence_system, flash::__trap;
using flash::__brev, flash::__clz, flash::__double_as_longlong, flash::__fadd_rn, flash::__fdividef, flash::__ffs, flash::__float2int_rn;
using flash::__float2int_rz, flash::__float_as_int, flash::__float_as_uint, flash::__fmaf_rn, flash::__fmul_rn, flash::__frcp_rn, flash::__fsqrt_rn;
using flash::__funnelshift_l, flash::__funnelshift_r, flash::__int2float_rn, flash::__int_as_float, flash::__longlong_as_double, flash::__popc;
using flash::__popcll, flash::__saturatef, flash::__uint_as_float, flash::max, flash::min, flash::rsqrtf;
using flash::__all_sync, flash::__any_sync, flash::__ballot_sync, flash::__match_all_sync, flash::__match_any_sync, flash::__reduce_add_sync;
using flash::__reduce_and_sync, flash::__reduce_max_sync, flash::__reduce_min_sync, flash::__reduce_or_sync, flash::__reduce_xor_sync;
using flash::__shfl_down_sync, flash::__shfl_sync, flash::__shfl_up_sync, flash::__shfl_xor_sync;
using flash::atomicAdd, flash::atomicCAS, flash::atomicExch, flash::atomicMax, flash::atomicMin, flash::atomicSub;

// The C library has reserved some of these names, too.
#define __expf(x) (::flash::__expf(x))
#define __exp10f(x) (::flash::__exp10f(x))
#define __logf(x) (::flash::__logf(x))
#define __log2f(x) (::flash::__log2f(x))
#define __log10f(x) (log10f(x))
#define __powf(x, y) (powf(x, y))
#define __sinf(x) (sinf(x))
#define __cosf(x) (cosf(x))
#define __tanf(x) (tanf(x))
#define __sincosf(x, s, c) (sincosf(x, s, c))

// ---- arithmetic ------------------------------------------------------------------------------------------------------------------------

// Of two types, as CUDA has them.
#define FLASH_MIN_MAX(name)                                                                                    \
  template <class A, class B, class T = std::common_type_t<A, B>>                                              \
  requires(std::is_arithmetic_v<A> && std::is_arithmetic_v<B> && !std::is_same_v<A, B>) constexpr T name(A a, B b) { \
    return name(static_cast<T>(a), static_cast<T>(b));                                                         \
  }
constexpr unsigned long min(unsigned long a, unsigned long b) { return b < a ? b : a; }
constexpr unsigned long max(unsigned long a, unsigned long b) { return a < b ? b : a; }
constexpr unsigned long long min(unsigned long long a, unsigned long long b) { return b < a ? b : a; }
constexpr unsigned long long max(unsigned long long a, unsigned long long b) { return a < b ? b : a; }
constexpr unsigned umin(unsigned a, unsigned b) { return min(a, b); }
constexpr unsigned umax(unsigned a, unsigned b) { return max(a, b); }
FLASH_MIN_MAX(min)
FLASH_MIN_MAX(max)

inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float fdividef(float a, float b) { return a / b; }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678f); }
inline float sinpif(float x) { return static_cast<float>(sin(M_PI * x)); }
inline float cospif(float x) { return static_cast<float>(cos(M_PI * x)); }
inline void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
constexpr int __mul24(int a, int b) { return a * b; }
constexpr unsigned __umul24(unsigned a, unsigned b) { return a * b; }
constexpr int __mulhi(int a, int b) { return static_cast<int>((long long){a} * b >> 32); }
constexpr unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((unsigned long long){a} * b >> 32); }
constexpr unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>((unsigned __int128){a} * b >> 64);
}
constexpr int __ffsll(long long x) { return __builtin_ffsll(x); }
constexpr int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
constexpr unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 | __brev(static_cast<unsigned>(x >> 32));
}
constexpr unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
  const unsigned long long both = static_cast<unsigned long long>(y) << 32 | x;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const auto byte = static_cast<unsigned>(both >> 8 * (s >> 4 * i & 7)) & 0xFFu;
    result |= ((s >> 4 * i & 8) != 0 ? (byte & 0x80u ? 0xFFu : 0u) : byte) << 8 * i;
  }
  return result;
}
constexpr int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) c += static_cast<signed char>(a >> 8 * i) * static_cast<signed char>(b >> 8 * i);
  return c;
}
constexpr unsigned __vabsdiffu4(unsigned a, unsigned b) {
  unsigned result = 0;
  for (unsigned i = 0; i < 32; i += 8) {
    const unsigned x = a >> i & 255u, y = b >> i & 255u;
    result |= (x < y ? y - x : x - y) << i;
  }
  return result;
}
inline unsigned __float2uint_rn(float x) { return static_cast<unsigned>(rintf(x)); }
inline unsigned __float2uint_rz(float x) { return static_cast<unsigned>(x); }
inline int __float2int_rd(float x) { return static_cast<int>(floorf(x)); }
inline int __float2int_ru(float x) { return static_cast<int>(ceilf(x)); }
inline int __double2int_rn(double x) { return static_cast<int>(rint(x)); }
inline int __double2int_rz(double x) { return static_cast<int>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline double __int2double_rn(int x) { return x; }

// ---- memory ------------------------------------------------------------------------------------------------------------------------------

#define FLASH_INLINE FLASH_SIMT_ALWAYS_INLINE
#define FLASH_ATOMIC(name, T, value) \
  FLASH_INLINE T name(T* at, T operand) { return ::flash::atomic_update(at, [operand](T old) { return static_cast<T>(value); }); }
#define FLASH_BITWISE(T)                    \
  FLASH_ATOMIC(atomicAnd, T, old & operand) \
  FLASH_ATOMIC(atomicOr, T, old | operand)  \
  FLASH_ATOMIC(atomicXor, T, old ^ operand)
FLASH_BITWISE(int)
FLASH_BITWISE(unsigned)
FLASH_BITWISE(unsigned long long)
FLASH_ATOMIC(atomicInc, unsigned, old >= operand ? 0u : old + 1)
FLASH_ATOMIC(atomicDec, unsigned, old == 0 || old > operand ? operand : old - 1)
FLASH_ATOMIC(atomicMax, long long, old < operand ? operand : old)
FLASH_ATOMIC(atomicMin, long long, operand < old ? operand : old)
FLASH_INLINE unsigned short atomicCAS(unsigned short* at, unsigned short compare, unsigned short value) {
  return ::flash::atomic_update(at, [=](unsigned short old) { return old == compare ? value : old; });
}
FLASH_INLINE float2 atomicAdd(float2* at, float2 v) { return {atomicAdd(&at->x, v.x), atomicAdd(&at->y, v.y)}; }
FLASH_INLINE float4 atomicAdd(float4* at, float4 v) {
  return {atomicAdd(&at->x, v.x), atomicAdd(&at->y, v.y), atomicAdd(&at->z, v.z), atomicAdd(&at->w, v.w)};
}
#undef FLASH_ATOMIC
// Among the threads of the block, or of all devices, which here is one.
#define FLASH_SCOPED(name)                              \
  template <class T, class... V>                        \
  FLASH_INLINE T name##_block(T* at, V... operands) {   \
    const ::flash::AtomicsOfBlock atomics;              \
    return name(at, operands...);                       \
  }                                                     \
  template <class T, class... V>                        \
  FLASH_INLINE T name##_system(T* at, V... operands) {  \
    return name(at, operands...);                       \
  }
FLASH_SCOPED(atomicAdd)
FLASH_SCOPED(atomicSub)
FLASH_SCOPED(atomicMin)
FLASH_SCOPED(atomicMax)
FLASH_SCOPED(atomicInc)
FLASH_SCOPED(atomicDec)
FLASH_SCOPED(atomicAnd)
FLASH_SCOPED(atomicOr)
FLASH_SCOPED(atomicXor)
FLASH_SCOPED(atomicExch)
FLASH_SCOPED(atomicCAS)

// Loads and stores with a hint for caches. Always inlined, so that a message names the kernel's line.
#define FLASH_LOAD(name)           \
  template <class T>               \
  FLASH_INLINE T name(const T* p) { \
    return *p;                     \
  }
#define FLASH_STORE(name)                                       \
  template <class T>                                            \
  FLASH_INLINE void name(T* p, std::type_identity_t<T> value) { \
    *p = value;                                                 \
  }
FLASH_LOAD(__ldg)
FLASH_LOAD(__ldca)
FLASH_LOAD(__ldcg)
FLASH_LOAD(__ldcs)
FLASH_LOAD(__ldcv)
FLASH_LOAD(__ldlu)
FLASH_STORE(__stcg)
FLASH_STORE(__stcs)
FLASH_STORE(__stwb)
FLASH_STORE(__stwt)

// ---- time and the like ---------------------------------------------------------------------------------------------------------------------

namespace flash::plain {
long long ticks();  ///< grows
unsigned active_lanes(Site);
constexpr unsigned not_shared = ~0u;
unsigned shared_address_of(const volatile void*);
void* shared_pointer(unsigned address);
}  // namespace flash::plain

inline long long clock64() { return ::flash::plain::ticks(); }
inline unsigned long long globaltimer() { return static_cast<unsigned long long>(::flash::plain::ticks()); }
inline void __nanosleep(unsigned) {}
inline void __brkpt() {}
inline void __prof_trigger(int) {}
inline unsigned __activemask(::flash::Site site = ::flash::Site::here()) { return ::flash::plain::active_lanes(site); }
inline std::size_t __cvta_generic_to_shared(const volatile void* p) { return ::flash::plain::shared_address_of(p); }
inline void* __cvta_shared_to_generic(std::size_t a) { return ::flash::plain::shared_pointer(static_cast<unsigned>(a)); }
inline std::size_t __cvta_generic_to_global(const volatile void* p) { return reinterpret_cast<std::size_t>(p); }
inline unsigned __isShared(const void* p) { return ::flash::plain::shared_address_of(p) != ::flash::plain::not_shared; }
#define __builtin_assume(x) ((void)0)
#define __builtin_nontemporal_load(p) (*(p))
