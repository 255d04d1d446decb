// What a CUDA thread knows of itself, and the synchronisations of its block and warp.
#pragma once

#include "common/machine/cpu/site.hpp"
#include "common/machine/cpu/types.hpp"
#include "common/machine/rules.hpp"

#include <string>

namespace flash {
inline namespace simt {

// Each operating-system thread runs one block at a time; a switch to another CUDA thread sets threadIdx.
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
constexpr int warpSize = 32;

/// Waits for all threads of the block. All must come to the same call.
void __syncthreads(Site = Site::here());
/// __syncthreads that also tells each thread: for how many (all, any) threads is the predicate not zero?
int __syncthreads_count(int predicate, Site = Site::here());
int __syncthreads_and(int predicate, Site = Site::here());
int __syncthreads_or(int predicate, Site = Site::here());

/// Orders the memory accesses of the lanes in the mask before and after it.
void __syncwarp(unsigned mask = 0xffffffffu, Site = Site::here());

void __threadfence();
void __threadfence_block();
void __threadfence_system();

int print_line(const char* format, ...);
/// CUDA's printf, to stdout as on a GPU: each line says which thread printed it, "block (0,0,0), thread (3,0,0): ...". Outside kernels, the C
/// library's. A template, so that it is preferred to that one where both are visible.
template <class... Values>
int printf(const char* format, Values... values) {
  return print_line(format, values...);
}

/// Stops the kernel: throws KernelError "kernel K, block (x,y,z), thread (x,y,z): message at file:line".
[[noreturn]] void fail(RuleId, Site, const std::string& message);
[[noreturn]] void fail(RuleId, Site, const char* message);  // a string would be the kernel's, on the host's heap

[[noreturn]] inline void __trap(Site site = Site::here()) { fail(RuleId::trap, site, "__trap()"); }

}  // namespace simt
}  // namespace flash
