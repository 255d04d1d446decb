// CUDA's built-in types for the host compiler. They live in flash::simt, so that objects compiled by nvcc, which have their
// own global types of these names, can be linked into the same program.
#pragma once

#include <cstddef>
#include <cstdint>

// What touches memory for a kernel: part of the kernel's own code, or the compiler would tell of the access a second time, from a function
// of the simulator and not from a line of the kernel; or not at all, if a call passes a structure by value straight from memory.
#define FLASH_SIMT_ALWAYS_INLINE [[gnu::always_inline]] inline

namespace flash {
inline namespace simt {

struct uint3 {
  unsigned x, y, z;
};

/// Extents of a grid or block; missing ones are 1.
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

// Vector types may alias anything: kernels read arrays of other types through them, four or eight elements at once.
#define FLASH_SIMT_VECTOR(T, name, alignment2, alignment4)      \
  struct alignas(alignment2) [[gnu::may_alias]] name##2 {       \
    T x, y;                                                     \
  };                                                            \
  struct alignas(alignment4) [[gnu::may_alias]] name##4 {       \
    T x, y, z, w;                                               \
  };                                                            \
  constexpr name##2 make_##name##2(T x, T y) { return {x, y}; } \
  constexpr name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

FLASH_SIMT_VECTOR(float, float, 8, 16)
FLASH_SIMT_VECTOR(double, double, 16, 16)
FLASH_SIMT_VECTOR(int, int, 8, 16)
FLASH_SIMT_VECTOR(unsigned, uint, 8, 16)
FLASH_SIMT_VECTOR(short, short, 4, 8)
FLASH_SIMT_VECTOR(unsigned short, ushort, 4, 8)

struct [[gnu::may_alias]] float3 {
  float x, y, z;
};
struct [[gnu::may_alias]] int3 {
  int x, y, z;
};
constexpr float3 make_float3(float x, float y, float z) { return {x, y, z}; }
constexpr int3 make_int3(int x, int y, int z) { return {x, y, z}; }
constexpr uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }

}  // namespace simt
}  // namespace flash
