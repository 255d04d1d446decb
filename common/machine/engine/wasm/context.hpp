// Suspended flows of control in WebAssembly, which cannot switch stacks: emscripten's fibers keep what lies on its own stack, the calls and their
// registers, in memory that they are given (its Asyncify pass).
#pragma once

#include <emscripten/fiber.h>

#include <cstddef>
#include <memory>

namespace flash::machine {

struct Context {
  static constexpr std::size_t saved_bytes = FLASH_FIBER_BYTES;
  emscripten_fiber_t fiber{};
  std::unique_ptr<std::byte[]> saved;  ///< from the first use on

  std::byte* memory() {
    if (saved == nullptr) saved.reset(new std::byte[saved_bytes]);
    return saved.get();
  }
};

inline void switch_context(Context& from, Context& to) {
  if (from.saved == nullptr) emscripten_fiber_init_from_current_context(&from.fiber, from.memory(), Context::saved_bytes);
  emscripten_fiber_swap(&from.fiber, &to.fiber);
}

}  // namespace flash::machine
