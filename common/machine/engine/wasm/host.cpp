// What the operating system does elsewhere. WebAssembly has no signals: a bad address ends the program, and steps alone tell an endless kernel.
#include "common/machine/engine/context.hpp"
#include "common/machine/engine/stack.hpp"
#include "common/machine/engine/stall_timer.hpp"

namespace flash::machine {

void prepare_context(Context& context, std::byte* stack, std::size_t bytes, void (*entry)()) {
  const auto start = [](void* to) { reinterpret_cast<void (*)()>(to)(); };
  emscripten_fiber_init(&context.fiber, start, reinterpret_cast<void*>(entry), stack, bytes, context.memory(),
                        Context::saved_bytes);
}

SignalHandler::SignalHandler(void (*)(const Signal&)) {}
SignalHandler::~SignalHandler() = default;

SignalStack::SignalStack() = default;
SignalStack::~SignalStack() = default;

StallTimer::StallTimer(int) {}
StallTimer::~StallTimer() = default;
bool stands_still() { return false; }

}  // namespace flash::machine
