// The context switch. By the calling conventions of System V x86-64 and of AArch64 a called function preserves a fixed set of
// registers; all others are dead at the call, so those and the stack pointer are all that a switch has to save. (Floating-point
// modes are not saved: no kernel changes them.)
#include "common/machine/engine/context.hpp"

#include <cstdint>

#if defined(__x86_64__)

// rdi: where to save this stack pointer, rsi: the stack pointer to resume with. Jumping, instead of `ret`, to the return
// address spares a misprediction: the processor's return stack belongs to the other fiber.
asm(R"(
.text
.globl flash_simt_switch
.p2align 4
flash_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmpq *%rcx
)");

namespace flash::machine {

void prepare_context(Context& context, std::byte* stack, std::size_t bytes, void (*entry)()) {
  auto* top = reinterpret_cast<std::uint64_t*>((reinterpret_cast<std::uintptr_t>(stack) + bytes) & ~std::uintptr_t{15});
  *--top = 0;  // entry's return address: none, which also ends backtraces; rsp = 8 mod 16 here, as after a call
  *--top = reinterpret_cast<std::uintptr_t>(entry);
  for (int i = 0; i < 6; ++i) *--top = 0;  // the six registers
  context.stack_pointer = top;
}

}  // namespace flash::machine

#elif defined(__aarch64__)

// x0: where to save this stack pointer, x1: the stack pointer to resume with. x29 is the frame pointer, x30 the return address;
// of the vector registers only the lower halves of v8..v15 are preserved.
asm(R"(
.text
.globl flash_simt_switch
.p2align 4
flash_simt_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");

namespace flash::machine {

// entry() starts with x30 = its own address, which it never returns to.
void prepare_context(Context& context, std::byte* stack, std::size_t bytes, void (*entry)()) {
  auto* top = reinterpret_cast<std::uint64_t*>((reinterpret_cast<std::uintptr_t>(stack) + bytes) & ~std::uintptr_t{15});
  top -= 20;  // 160 bytes of saved registers
  for (int i = 0; i < 20; ++i) top[i] = 0;
  top[11] = reinterpret_cast<std::uintptr_t>(entry);  // x30
  context.stack_pointer = top;
}

}  // namespace flash::machine

#endif
