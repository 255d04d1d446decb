// The judge of puzzles.cu and flash.cu.
#pragma once

#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

extern "C" __attribute__((weak)) int flash_findings();  // common/run's; nvcc's programs have none
extern "C" __attribute__((weak)) void flash_unwritten(const void* begin);

inline const float UNWRITTEN = std::numeric_limits<float>::signaling_NaN();  // no operation makes it, nor leaves it as it is

// Puzzles are judged strictly: what GPUs tolerate although CUDA forbids it is wrong. Only kernels with findings are reported.
inline const int STRICT = setenv("FLASH_RUN_STRICT", "1", 0) + setenv("FLASH_RUN_BRIEF", "1", 0);

using Numbers = std::vector<float>;
inline const int SIZE = 10;         // of out
inline int run;                     // 0, then 1: each kernel runs twice, on other numbers
inline std::function<void()> fill;  // the arrays with those of this run

/// Launches a kernel and compares what it writes with what run 0 and run 1 should. Ends the program unless both are right.
inline void judge(const char* puzzle, float* out, const Numbers& first, const Numbers& second, const char* task,
                  const std::function<void()>& launch) {
  const bool simulated = flash_findings != nullptr;
  bool ended = true, clean = true, right = true;
  Numbers expected;
  const auto written = [&](int i) { return std::memcmp(&out[i], &UNWRITTEN, sizeof(float)) != 0; };
  const auto good = [&](int i) {
    return written(i) ? std::abs(out[i] - expected[i]) <= 1e-5f * std::abs(expected[i]) : std::isnan(expected[i]);
  };
  for (run = 0; run < 2 && right && ended && clean; ++run) {
    fill();
    std::fill_n(out, SIZE, UNWRITTEN);
    if (flash_unwritten != nullptr) flash_unwritten(out);
    launch();
    ended = cudaDeviceSynchronize() == cudaSuccess;
    clean = !simulated || flash_findings() == 0;
    right = ended || simulated;  // after an error a GPU's memory is gone
    expected = run == 0 ? first : second;
    expected.resize(SIZE, UNWRITTEN);
    for (int i = 0; i < SIZE; ++i) right = right && good(i);
  }
  const bool colours = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  const auto colour = [&](const char* code) { return colours ? code : ""; };
  std::printf("%s: %s%s%s\n", puzzle, colour(right && ended && clean ? "\033[32m" : "\033[31m"),
              right && ended && clean ? "right"
              : right && ended        ? "the numbers are right, but a rule of CUDA is broken: see below"
              : right                 ? "the numbers are right, but the kernel was stopped: see below"
              : ended && run == 2     ? "not yet: right for the first numbers, but not for others"
              : ended                 ? "not yet"
                                      : "not yet; what stopped it is below",
              colour("\033[0m"));
  if (!right && (ended || simulated)) {
    int shown = SIZE;
    while (good(shown - 1) && !written(shown - 1)) --shown;
    const auto show = [&](float x, int i, bool own) {  // + 0: no -0
      std::printf("%s", colour(own && !good(i) ? "\033[31m" : ""));
      std::isnan(x) ? std::printf(" %6s", own && written(i) ? "nan" : "-") : std::printf(" %6.5g", x + 0);
      std::printf("%s", colour(own && !good(i) ? "\033[0m" : ""));
    };
    std::printf("  yours    ");
    for (int i = 0; i < shown; ++i) show(out[i], i, true);
    std::printf("\n  expected ");
    for (int i = 0; i < shown; ++i) show(expected[i], i, false);
    int wrong = 0;
    while (good(wrong)) ++wrong;
    std::printf("\n%s", std::isinf(out[wrong])    ? "  inf: exp of more than 88, or a division by 0\n"
                        : !std::isnan(out[wrong]) ? ""
                        : written(wrong) ? "  nan: 0 / 0, inf / inf, inf - inf, inf * 0, or a value that nobody has set\n"
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
}
