// What the lab programs share: arrays in "GPU memory", the order of threads, and claims that fail the program if they are false.
#pragma once

#include "common/machine/cpu/findings.hpp"
#include "common/machine/cpu/options.hpp"
#include "common/machine/engine/device_memory.hpp"
#include "common/machine/error.hpp"
#include "common/parts/kernel.cuh"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

namespace flash::lab {

/// A matrix [rows, cols] that kernels can read and write. Its floats start as NaN, like any memory nobody has written.
class Array {
 public:
  Array(const char* name, int rows, int cols)
      : name_(name), rows_(rows), cols_(cols), lines_(static_cast<std::size_t>(rows * cols) / line_floats + 1) {
    for (Line& line : lines_) line.fill(NAN);
    machine::add_device_memory(lines_.data(), static_cast<std::size_t>(rows * cols) * sizeof(float));
  }
  Array(Array&&) = delete;
  ~Array() { machine::remove_device_memory(lines_.data()); }

  float& operator()(int row, int col) {
    const auto index = static_cast<std::size_t>(row) * static_cast<std::size_t>(cols_) + static_cast<std::size_t>(col);
    return lines_[index / line_floats][index % line_floats];
  }

  /// For a kernel's parameter.
  Matrix<float> matrix() { return view<float>(ref()).head(0, 0); }
  Matrix<const float> const_matrix() { return view<const float>(ref()).head(0, 0); }
  Vector<float> vector() { return view<float>(ref()).head_vector(0, 0); }

 private:
  // GPU memory comes in pieces that start at multiples of 256 bytes.
  static constexpr std::size_t line_floats = 64;
  struct alignas(256) Line : std::array<float, line_floats> {};

  TensorRef ref() {
    const std::int64_t cols = cols_;
    const std::int64_t all = rows_ * cols;
    return {lines_.front().data(), name_, Dtype::fp32, {1, 1, rows_, cols_}, {all, all, cols, 1}};
  }

  const char* name_;
  int rows_, cols_;
  std::vector<Line> lines_;
};

template <class Change>
void change_options(Change change) {
  Options changed = options();
  change(changed);
  set_options(changed);
}

/// Takes the threads of a block in this order from now on.
inline void set_order(Order order, std::uint64_t seed = 0) {
  change_options([&](Options& changed) { changed.order = order, changed.seed = seed; });
}

/// Counts from zero, bank conflicts and sectors too, which are counted on request only.
inline void start_counting() {
  change_options([](Options& changed) { changed.count = true; });
  reset_counters();
}

/// The simulator's message about a kernel that must not be allowed to go on; "" if nothing was wrong.
template <class Function>
std::string message_of(Function run) {
  try {
    run();
    return "";
  } catch (const KernelError& error) {
    return error.what();
  }
}

/// What watching finds of a race, "" if there is none.
template <class Function>
std::string race_of(Function run) {
  change_options([](Options& changed) { changed.watch = true; });
  reset_findings();
  run();
  change_options([](Options& changed) { changed.watch = false; });
  return findings().races.empty() ? "" : sentence(findings().races.front());
}

/// Remembers whether every claim of the program was true.
class Claims {
 public:
  /// The first thing in a program. An error, as of a kernel or in a variable of the environment, ends it with a message alone.
  Claims() {
    std::set_terminate([] {
      std::fflush(stdout);
      try {
        throw;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        std::_Exit(dynamic_cast<const UsageError*>(&error) != nullptr ? 2 : 1);
      }
    });
    options();
  }

  void check(bool is_true, const std::string& claim) {
    if (!is_true && std::find(broken_.begin(), broken_.end(), claim) == broken_.end()) broken_.push_back(claim);
  }
  /// At the end of the program: names the claims that did not hold.
  int exit_code() const {
    for (const std::string& claim : broken_) std::printf("NOT TRUE: %s\n", claim.c_str());
    return broken_.empty() ? 0 : 1;
  }

 private:
  std::vector<std::string> broken_;  // each once, however many elements show it
};

}  // namespace flash::lab
