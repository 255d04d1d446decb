// Suspended flows of control: the callee-saved registers of each lie on its own stack, and one pointer finds them.
#pragma once

#include <cstddef>

#ifdef __EMSCRIPTEN__
#include "common/machine/engine/wasm/context.hpp"
#else

#if !(defined(__x86_64__) && !defined(__ILP32__)) && !defined(__aarch64__)
#error "the simulator switches stacks on x86-64 and AArch64 only"
#endif

namespace flash::machine {

struct Context {
  void* stack_pointer = nullptr;
};
extern "C" void flash_simt_switch(void** save_here, void* resume) asm("flash_simt_switch");
inline void switch_context(Context& from, Context& to) { flash_simt_switch(&from.stack_pointer, to.stack_pointer); }

}  // namespace flash::machine
#endif  // not __EMSCRIPTEN__

namespace flash::machine {

/// Makes a context that starts entry() on that stack. entry() must not return.
void prepare_context(Context&, std::byte* stack, std::size_t bytes, void (*entry)());

}  // namespace flash::machine
