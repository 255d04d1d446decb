// CUDA's vector types, global as there.
#pragma once

using flash::dim3, flash::uint3, flash::float2, flash::float3, flash::float4, flash::double2, flash::double4, flash::int2, flash::int3, flash::int4;
using flash::uint2, flash::uint4, flash::short2, flash::short4, flash::ushort2, flash::ushort4;
using flash::make_double2, flash::make_double4, flash::make_float2, flash::make_float3, flash::make_float4, flash::make_int2, flash::make_int3;
using flash::make_int4, flash::make_short2, flash::make_short4, flash::make_uint2, flash::make_uint3, flash::make_uint4, flash::make_ushort2;
using flash::make_ushort4;

typedef unsigned char uchar;
#define FLASH_VECTOR1(T, name)      \
  struct [[gnu::may_alias]] name##1 { \
    T x;                            \
  };                                \
  constexpr name##1 make_##name##1(T x) { return {x}; }
#define FLASH_VECTOR2(T, name, bytes)                 \
  struct alignas(bytes) [[gnu::may_alias]] name##2 {  \
    T x, y;                                           \
  };                                                  \
  constexpr name##2 make_##name##2(T x, T y) { return {x, y}; }
#define FLASH_VECTOR3(T, name)        \
  struct [[gnu::may_alias]] name##3 { \
    T x, y, z;                        \
  };                                  \
  constexpr name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }
#define FLASH_VECTOR4(T, name, bytes)                \
  struct alignas(bytes) [[gnu::may_alias]] name##4 { \
    T x, y, z, w;                                    \
  };                                                 \
  constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
FLASH_VECTOR1(char, char)
FLASH_VECTOR1(unsigned char, uchar)
FLASH_VECTOR1(short, short)
FLASH_VECTOR1(unsigned short, ushort)
FLASH_VECTOR1(int, int)
FLASH_VECTOR1(unsigned, uint)
FLASH_VECTOR1(long, long)
FLASH_VECTOR1(unsigned long, ulong)
FLASH_VECTOR1(long long, longlong)
FLASH_VECTOR1(unsigned long long, ulonglong)
FLASH_VECTOR1(float, float)
FLASH_VECTOR1(double, double)
FLASH_VECTOR2(signed char, char, 2)
FLASH_VECTOR2(unsigned char, uchar, 2)
FLASH_VECTOR2(long, long, 16)
FLASH_VECTOR2(unsigned long, ulong, 16)
FLASH_VECTOR2(long long, longlong, 16)
FLASH_VECTOR2(unsigned long long, ulonglong, 16)
FLASH_VECTOR3(signed char, char)
FLASH_VECTOR3(unsigned char, uchar)
FLASH_VECTOR3(short, short)
FLASH_VECTOR3(unsigned short, ushort)
FLASH_VECTOR3(long, long)
FLASH_VECTOR3(unsigned long, ulong)
FLASH_VECTOR3(long long, longlong)
FLASH_VECTOR3(unsigned long long, ulonglong)
FLASH_VECTOR3(double, double)
FLASH_VECTOR4(signed char, char, 4)
FLASH_VECTOR4(unsigned char, uchar, 4)
FLASH_VECTOR4(long, long, 16)
FLASH_VECTOR4(unsigned long, ulong, 16)
FLASH_VECTOR4(long long, longlong, 16)
FLASH_VECTOR4(unsigned long long, ulonglong, 16)
