// One asynchronous copy from global to shared memory.
#pragma once

#include <cstddef>

namespace flash {
inline namespace simt {

struct AsyncCopy {
  void* to;          ///< shared memory
  const void* from;  ///< global memory
  int bytes;         ///< written: 4, 8 or 16
  int from_bytes;    ///< read; the rest is filled with zeros
};

}  // namespace simt
}  // namespace flash
