// Hazards of asynchronous copies and products, one kernel each (zoo_async_*.cuh), with a twin that is correct.
#pragma once

#include <vector>

namespace flash {

/// Global memory of a case: a tensor of 128 rows of 64 fp16 numbers, and what the kernel leaves.
struct AsyncMemory {
  alignas(16) unsigned in[4096];
  alignas(16) unsigned out[2048];
};

struct AsyncCase {
  const char* name;
  const char* says;  ///< part of the simulator's message; null: there is only the correct kernel, which looks like a mistake
  void (*wrong)(void*);   ///< launches the kernel on an AsyncMemory of the device
  void (*right)(void*);   ///< launches its twin
  const char* file = "";  ///< that has the line `// BUG name`
};

}  // namespace flash
