// Signals that kernels raise: a fault in the hole below a stack, or at any other address that is no memory; and the stall timer's.
#include "common/machine/engine/stack.hpp"
#include "common/machine/engine/stall_timer.hpp"

#include <signal.h>
#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace flash::machine {
namespace {

constexpr std::array signals{SIGSEGV, SIGBUS, stall_signal};  // SIGBUS: what macOS sends

std::mutex handlers_mutex;
int handler_users = 0;  // launches that run now
std::array<struct sigaction, signals.size()> handlers_before;
void (*report)(const SignalHandler::Signal&) = nullptr;

const void* interrupted_instruction(const ucontext_t& context) {
#if defined(__linux__) && defined(__x86_64__)
  const auto address = static_cast<std::uintptr_t>(context.uc_mcontext.gregs[REG_RIP]);
#elif defined(__linux__) && defined(__aarch64__)
  const auto address = static_cast<std::uintptr_t>(context.uc_mcontext.pc);
#elif defined(__APPLE__) && defined(__aarch64__)
  const auto address = static_cast<std::uintptr_t>(context.uc_mcontext->__ss.__pc);
#elif defined(__APPLE__) && defined(__x86_64__)
  const auto address = static_cast<std::uintptr_t>(context.uc_mcontext->__ss.__rip);
#else
  (void)context;
  const std::uintptr_t address = 0;
#endif
  return reinterpret_cast<const void*>(address);
}

extern "C" void flash_simt_on_signal(int number, siginfo_t* info, void* context) {
  const ucontext_t& interrupted = *static_cast<ucontext_t*>(context);
  // report() does not return if a kernel is to blame; so the signals that a handler blocks are allowed again here.
  pthread_sigmask(SIG_SETMASK, &interrupted.uc_sigmask, nullptr);
  report({number, info->si_addr, interrupted_instruction(interrupted)});
  if (number == stall_signal) return;  // all is well
  // Not ours: the faulting instruction runs again, and faults again, under the handler that was there before.
  for (std::size_t i = 0; i < signals.size(); ++i) {
    if (signals[i] == number) sigaction(number, &handlers_before[i], nullptr);
  }
}

}  // namespace

SignalHandler::SignalHandler(void (*on_signal)(const Signal&)) {
  const std::lock_guard lock(handlers_mutex);
  if (handler_users++ > 0) return;
  report = on_signal;
  struct sigaction action = {};
  action.sa_sigaction = flash_simt_on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &action, &handlers_before[i]);
}

SignalHandler::~SignalHandler() {
  const std::lock_guard lock(handlers_mutex);
  if (--handler_users > 0) return;
  for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &handlers_before[i], nullptr);
}

SignalStack::SignalStack() {
  constexpr std::size_t bytes = 64 * 1024;
  memory_ = std::make_unique<std::byte[]>(bytes);
  stack_t mine = {};
  mine.ss_sp = memory_.get();
  mine.ss_size = bytes;
  sigaltstack(&mine, &before_);
}

SignalStack::~SignalStack() { sigaltstack(&before_, nullptr); }

}  // namespace flash::machine
