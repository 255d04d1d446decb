// A loop over independent tasks, spread over the processor's cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace flash {

/// Calls task(i) for i in [0, count), each once, on all cores in any order. The first exception of a task is thrown here.
template <class Task>
void parallel_for(std::int64_t count, Task&& task) {
  std::atomic<std::int64_t> next{0};
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto work = [&] {
    try {
      for (std::int64_t i = next++; i < count; i = next++) task(i);
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
      next = count;  // the others finish what they have begun
    }
  };
  const std::int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (std::int64_t i = 1; i < std::min(cores, count); ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

/// Likewise task(i, j) for i in [0, rows) and j in [0, cols), such as batches and heads.
template <class Int, class Task>
void parallel_for(Int rows, Int cols, Task&& task) {
  parallel_for(std::int64_t{rows} * cols,
               [&](std::int64_t n) { task(static_cast<Int>(n / cols), static_cast<Int>(n % cols)); });
}

}  // namespace flash
