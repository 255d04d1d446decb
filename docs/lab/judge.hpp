// The judge of puzzles.cu and flash.cu.
#pragma once

#include <unistd.h>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <vector>

extern "C" __attribute__((weak)) int flash_findings();  // common/run's; nvcc's programs have none
extern "C" __attribute__((weak)) void flash_unwritten(const void* begin);

inline const float UNWRITTEN = std::numeric_limits<float>::signaling_NaN();  // no operation makes it, nor leaves it as it is

// Puzzles are judged strictly: what GPUs tolerate although CUDA forbids it is wrong. Only kernels with findings are reported.
inline const int STRICT = setenv("FLASH_RUN_STRICT", "1", 0) + setenv("FLASH_RUN_BRIEF", "1", 0);

inline void clear(float* out, std::size_t count) {  // then nobody has written it
  for (std::size_t i = 0; i < count; ++i) out[i] = UNWRITTEN;
  if (flash_unwritten != nullptr) flash_unwritten(out);
}

/// Waits for the kernel and compares what it wrote. Ends the program unless that is right; clears `out` for the next one.
inline void judge(const char* puzzle, float* out, const std::vector<float>& expected, const char* task) {
  const bool ended = cudaDeviceSynchronize() == cudaSuccess;
  const bool simulated = flash_findings != nullptr, clean = !simulated || flash_findings() == 0;
  const auto good = [&](std::size_t i) { return std::abs(out[i] - expected[i]) < 1e-3f; };
  bool right = ended || simulated;  // after an error a GPU's memory is gone
  for (std::size_t i = 0; i < expected.size(); ++i) right = right && good(i);
  const bool colours = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  const auto colour = [&](const char* code) { return colours ? code : ""; };
  std::printf("%s: %s%s%s\n", puzzle, colour(right && ended && clean ? "\033[32m" : "\033[31m"),
              right && ended && clean ? "right"
              : right && ended        ? "the numbers are right, but a rule of CUDA is broken: see below"
              : right                 ? "the numbers are right, but the kernel was stopped: see below"
              : ended                 ? "not yet"
                                      : "not yet; what stopped it is below",
              colour("\033[0m"));
  if (!right && (ended || simulated)) {
    const auto written = [&](std::size_t i) { return std::memcmp(&out[i], &UNWRITTEN, sizeof(float)) != 0; };
    std::printf("  yours    ");
    for (std::size_t i = 0; i < expected.size(); ++i) {  // + 0: no -0
      std::printf("%s", colour(good(i) ? "" : "\033[31m"));
      std::isnan(out[i]) ? std::printf(" %6s", written(i) ? "nan" : "-") : std::printf(" %6.5g", out[i] + 0);
      std::printf("%s", colour(good(i) ? "" : "\033[0m"));
    }
    std::printf("\n  expected ");
    for (const float x : expected) std::printf(" %6.5g", x);
    std::size_t first = 0;
    while (good(first)) ++first;
    std::printf("\n%s", std::isinf(out[first])    ? "  inf: exp of more than 88, or a division by 0\n"
                        : !std::isnan(out[first]) ? ""
                        : written(first)          ? "  nan: 0 / 0, inf - inf, inf * 0, or a value that nobody has set\n"
                                                  : "  -: nobody has written that element\n");
  }
  if (const char* const path = std::getenv("FLASH_RUN_RIGHT")) {  // which common/run --watch reads
    std::FILE* const file = std::fopen(path, "a");
    if (file != nullptr) std::fprintf(file, "%s\n", right && ended && clean ? puzzle : ""), std::fclose(file);
  }
  if (!right || !ended || !clean) {
    std::printf("  %s%s%s\n", colour("\033[1m"), task, colour("\033[0m"));
    std::exit(0);
  }
  clear(out, expected.size());
}
