// Suspended flows of control: the callee-saved registers of each lie on its own stack, and one pointer finds them.
#pragma once

#include <cstddef>

#ifdef __EMSCRIPTEN__
#include "common/machine/engine/wasm/context.hpp"
#else

#if !defined(FLASH_SIMT_UCONTEXT) && !(defined(__x86_64__) && !defined(__ILP32__)) && !defined(__aarch64__)
#define FLASH_SIMT_UCONTEXT  // no hand-written switch for this processor
#endif
#ifdef FLASH_SIMT_UCONTEXT
#include <ucontext.h>
#endif

namespace flash::machine {

#ifdef FLASH_SIMT_UCONTEXT

struct Context {
  ucontext_t registers;
};
inline void switch_context(Context& from, Context& to) { swapcontext(&from.registers, &to.registers); }

#else

struct Context {
  void* stack_pointer = nullptr;
};
extern "C" void flash_simt_switch(void** save_here, void* resume) asm("flash_simt_switch");
inline void switch_context(Context& from, Context& to) { flash_simt_switch(&from.stack_pointer, to.stack_pointer); }

#endif

}  // namespace flash::machine
#endif  // not __EMSCRIPTEN__

namespace flash::machine {

/// Makes a context that starts entry() on that stack. entry() must not return.
void prepare_context(Context&, std::byte* stack, std::size_t bytes, void (*entry)());

}  // namespace flash::machine
