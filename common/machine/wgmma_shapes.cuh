// The instructions of wgmma.cuh, one per N: they differ only in the number of registers that the assembly has to list.
#pragma once

#include "common/machine/float16.cuh"
#include "common/machine/hopper.cuh"
#include "common/machine/isa/wgmma_operand.hpp"

#include <type_traits>

namespace flash {
inline namespace gpu {

template <Major M>
__device__ inline unsigned long long wgmma_descriptor(WgmmaOperand<M> operand) {
  return static_cast<unsigned long long>(operand.high) << 32 | operand.low;
}

/// Selected by the number of D's registers, N / 2.
template <int Registers>
struct WgmmaShape {
  static_assert(Registers == 0, "wgmma_shapes.cuh has N = 32, 64, 80, 96, 112, 128, 160, 192 and 256, those that kernels use");
};

// The first n registers: their placeholders in the assembly, and their operands.
#define FLASH_8(i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define FLASH_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define FLASH_NAMES_32 FLASH_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define FLASH_NAMES_40 FLASH_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define FLASH_NAMES_48 FLASH_NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define FLASH_NAMES_56 FLASH_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define FLASH_NAMES_64 FLASH_NAMES_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define FLASH_NAMES_80 FLASH_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define FLASH_NAMES_96 FLASH_NAMES_80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define FLASH_NAMES_128                                                                          \
  FLASH_NAMES_96                                                                                 \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define FLASH_D_16 FLASH_8(0), FLASH_8(8)
#define FLASH_D_32 FLASH_D_16, FLASH_8(16), FLASH_8(24)
#define FLASH_D_40 FLASH_D_32, FLASH_8(32)
#define FLASH_D_48 FLASH_D_40, FLASH_8(40)
#define FLASH_D_56 FLASH_D_48, FLASH_8(48)
#define FLASH_D_64 FLASH_D_56, FLASH_8(56)
#define FLASH_D_80 FLASH_D_64, FLASH_8(64), FLASH_8(72)
#define FLASH_D_96 FLASH_D_80, FLASH_8(80), FLASH_8(88)
#define FLASH_D_128 FLASH_D_96, FLASH_8(96), FLASH_8(104), FLASH_8(112), FLASH_8(120)

// One instruction. `accumulate` is a predicate; the immediate operands are the scales of A and B and whether each is
// transposed. The operands after D's registers are numbered p0 to p6.
#define FLASH_SHARED(n, registers, type, p0, p1, p2, p3, p4)                                               \
  FLASH_SM90A("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %" #p2                                   \
              ", 0;\n"                                                                                     \
              "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" FLASH_NAMES_##registers \
              "}, "                                                                                        \
              "%" #p0 ", %" #p1 ", accumulate, 1, 1, %" #p3 ", %" #p4 ";\n}"                               \
              : FLASH_D_##registers                                                                        \
              : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(TransA), "n"(TransB)                \
              : "memory")
#define FLASH_REGISTERS(n, registers, type, p0, p1, p2, p3, p4, p5, p6)                                            \
  FLASH_SM90A("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %" #p5                                           \
              ", 0;\n"                                                                                             \
              "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" FLASH_NAMES_##registers         \
              "}, "                                                                                                \
              "{%" #p0 ", %" #p1 ", %" #p2 ", %" #p3 "}, %" #p4 ", accumulate, 1, 1, %" #p6 ";\n}"                 \
              : FLASH_D_##registers                                                                                \
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)), "n"(TransB) \
              : "memory")

#define FLASH_SHAPE(n, registers, p0, p1, p2, p3, p4, p5, p6)                                                              \
  template <>                                                                                                              \
  struct WgmmaShape<registers> {                                                                                           \
    template <class T, int TransA, int TransB>                                                                             \
    __device__ static void product(float (&d)[registers], unsigned long long a, unsigned long long b, bool accumulate) {   \
      if constexpr (std::is_same_v<T, __half>) {                                                                           \
        FLASH_SHARED(n, registers, "f16", p0, p1, p2, p3, p4);                                                             \
      } else {                                                                                                             \
        FLASH_SHARED(n, registers, "bf16", p0, p1, p2, p3, p4);                                                            \
      }                                                                                                                    \
    }                                                                                                                      \
    template <class T, int TransB>                                                                                         \
    __device__ static void product(float (&d)[registers], const unsigned (&a)[4], unsigned long long b, bool accumulate) { \
      if constexpr (std::is_same_v<T, __half>) {                                                                           \
        FLASH_REGISTERS(n, registers, "f16", p0, p1, p2, p3, p4, p5, p6);                                                  \
      } else {                                                                                                             \
        FLASH_REGISTERS(n, registers, "bf16", p0, p1, p2, p3, p4, p5, p6);                                                 \
      }                                                                                                                    \
    }                                                                                                                      \
  };
FLASH_SHAPE(32, 16, 16, 17, 18, 19, 20, 21, 22)
FLASH_SHAPE(64, 32, 32, 33, 34, 35, 36, 37, 38)
FLASH_SHAPE(80, 40, 40, 41, 42, 43, 44, 45, 46)
FLASH_SHAPE(96, 48, 48, 49, 50, 51, 52, 53, 54)
FLASH_SHAPE(112, 56, 56, 57, 58, 59, 60, 61, 62)
FLASH_SHAPE(128, 64, 64, 65, 66, 67, 68, 69, 70)
FLASH_SHAPE(160, 80, 80, 81, 82, 83, 84, 85, 86)
FLASH_SHAPE(192, 96, 96, 97, 98, 99, 100, 101, 102)
FLASH_SHAPE(256, 128, 128, 129, 130, 131, 132, 133, 134)

}  // namespace gpu
}  // namespace flash
