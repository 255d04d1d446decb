// The memory of a program that calls CUDA's runtime by itself, for whoever stands in for cudaMalloc and its kin. Kernels reach all of it by plain
// pointers, wherever those come from: a parameter, a struct, a device variable, other memory. Its bytes and sectors are counted as
// "cudaMalloc at x.cu:7" (Counters::traffic), and messages call it so, too:
//
//   auto* a = allocate_memory(bytes, {MemoryKind::device, "cudaMalloc", site});   // site: the program's line, with a file name that stays
//   filled_by_host(a, bytes);                                                     // cudaMemcpy and cudaMemset, after they have
//   if (!free_memory(a, site)) ...                                                // cudaFree of something else
//   register_memory(&variable, sizeof variable, {MemoryKind::symbol, "variable"}); // before the first launch
//
// Run kernels with Options{.lenient = true, .host_pointers = false}, by run_kernel() or launch(). A kernel that breaks a rule ends with a
// KernelError whose text ends with " at FILE:LINE", or " at FILE:LINE, called from FILE:LINE": "... reads 64 bytes past the end of the 256 bytes of
// cudaMalloc at x.cu:7, at x.cu:20". Compile with -fsanitize=alignment if misaligned vectors are to be found.
#pragma once

#include "common/machine/cpu/site.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace flash {
inline namespace simt {

enum class MemoryKind : std::uint8_t {
  device,   ///< kernels and cudaMemcpy access it
  managed,  ///< the host does, too: cudaMallocManaged, cudaMallocHost
  symbol,   ///< a variable of the program: __device__, __constant__, __managed__
};

struct MemoryOrigin {
  MemoryKind kind = MemoryKind::device;
  std::string call;  ///< "cudaMalloc"; of a symbol its name
  Site site{};       ///< of the call
};

/// Pages of their own amid pages that nobody can access. They hold NaN, which counts as unwritten. Throws DeviceError if memory is full.
void* allocate_memory(std::size_t bytes, const MemoryOrigin&);
/// False if no allocation that lives begins there. The addresses are not given out again: who uses them later is told.
bool free_memory(void* begin, Site);

/// Memory that the program has anyway.
void register_memory(const void* begin, std::size_t bytes, const MemoryOrigin&);
bool unregister_memory(const void* begin, Site);

/// "cudaMalloc at x.cu:7", or the symbol's name.
std::string name_of(const MemoryOrigin&);

/// These bytes now have values.
void filled_by_host(const void* begin, std::size_t bytes);
/// "24 bytes that nobody has written, the first of them ..."; "" if all have been, as far as is known.
std::string unwritten_words(const void* begin, std::size_t bytes);

/// Called, and the program ended if it returns, when the host's part of a file with kernels accesses device memory: rule foreign_memory. None:
/// the message is printed. What the C library does for the host, such as memcpy, goes unnoticed.
extern void (*on_host_access)(const std::string& message);

}  // namespace simt
}  // namespace flash
