// A fault in the hole below a stack means that a kernel's frames were too large for it.
#include "common/simt/machine/stack.hpp"

#include <signal.h>
#include <ucontext.h>

#include <memory>
#include <mutex>

namespace flash::machine {
namespace {

std::mutex mutex;
int users = 0;  // launches that run now
struct sigaction before_segv, before_bus;
void (*report)(const void*) = nullptr;

extern "C" void flash_simt_on_fault(int signal, siginfo_t* info, void* interrupted) {
  // report() does not return if the fault is ours; so the signals that a handler blocks are allowed again here.
  pthread_sigmask(SIG_SETMASK, &static_cast<ucontext_t*>(interrupted)->uc_sigmask, nullptr);
  report(info->si_addr);
  // Not ours: the faulting instruction runs again, and faults again, under the handler that was there before.
  sigaction(signal, signal == SIGBUS ? &before_bus : &before_segv, nullptr);
}

}  // namespace

OverflowHandler::OverflowHandler(void (*on_overflow)(const void*)) {
  const std::lock_guard lock(mutex);
  if (users++ > 0) return;
  report = on_overflow;
  struct sigaction action = {};
  action.sa_sigaction = flash_simt_on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &before_segv);
  sigaction(SIGBUS, &action, &before_bus);  // what macOS sends
}

OverflowHandler::~OverflowHandler() {
  const std::lock_guard lock(mutex);
  if (--users > 0) return;
  sigaction(SIGSEGV, &before_segv, nullptr);
  sigaction(SIGBUS, &before_bus, nullptr);
}

struct SignalStack::Impl {
  static constexpr std::size_t bytes = 64 * 1024;
  stack_t before = {};
  std::unique_ptr<std::byte[]> memory = std::make_unique<std::byte[]>(bytes);
};

SignalStack::SignalStack() : impl_(new Impl) {
  stack_t mine = {};
  mine.ss_sp = impl_->memory.get();
  mine.ss_size = Impl::bytes;
  sigaltstack(&mine, &impl_->before);
}

SignalStack::~SignalStack() {
  sigaltstack(&impl_->before, nullptr);
  delete impl_;
}

}  // namespace flash::machine
