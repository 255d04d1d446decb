// What both sides of a launch, host and kernel, and both compilers know: types of elements, tensors in device memory, what the
// device allows, and what the simulator counts. Plain C++.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#ifdef __CUDACC__
#define FLASH_HOST_DEVICE __host__ __device__
#else
#define FLASH_HOST_DEVICE
#endif

namespace flash {

enum class Backend { gpu, cpu };  ///< nvcc's, and the simulator
enum class Dtype { fp32, fp16, bf16 };

/// True if a From becomes a To without narrowing, which braces refuse: no 64-bit size in an int, no double in a float.
template <class To, class From>
concept Lossless = requires(From from) {
  To{from};
};

/// Bytes of one element.
FLASH_HOST_DEVICE constexpr std::int64_t size_of(Dtype dtype) { return dtype == Dtype::fp32 ? 4 : 2; }

/// A tensor [B, H, N, d] in that logical order, whatever the order in memory. Strides are in elements.
/// One number per row, such as the LSE, is [B, H, N, 1]. An extent that is broadcast has stride 0.
struct TensorRef {
  void* data = nullptr;
  const char* name = "";  ///< for error messages and byte counts; a string literal
  Dtype dtype = Dtype::fp32;
  std::array<std::int64_t, 4> shape{};
  std::array<std::int64_t, 4> stride{};

  bool exists() const { return data != nullptr; }
  std::int64_t elements() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
};

/// What a launch may ask of the device: an NVIDIA GPU, or the one that the simulator stands for.
struct DeviceLimits {
  int sm = 90;                           ///< what kernels may count on: 90 if they were compiled for compute capability 9.0
  int multiprocessors = 132;             ///< SMs
  std::size_t shared_bytes = 232448;     ///< dynamic shared memory of a block, at most (227 KB on sm_90)
  std::size_t shared_bytes_sm = 233472;  ///< shared memory of an SM, for all its blocks; each takes 1 KB more than it asks for
  bool wgmma = sm == 90;                 ///< kernels were compiled for compute capability 9.0 with its own instructions ("90a")
};

/// What kernels moved between global memory and registers or shared memory, per tensor (by TensorRef::name).
struct TensorTraffic {
  std::string tensor;
  std::uint64_t read_bytes = 0, written_bytes = 0;  ///< each thread's accesses by themselves
  std::uint64_t read_sectors = 0,
                written_sectors = 0;  ///< sectors of 32 bytes that warp-wide accesses touched: coalesced or not
};

/// What the simulator counted, exactly, over the launches since reset.
struct Counters {
  std::vector<TensorTraffic> traffic;
  std::uint64_t bank_conflicts = 0;        ///< extra shared-memory cycles of warp-wide accesses through views, and ldmatrix
  std::uint64_t tensor_core_products = 0;  ///< multiply-adds done by mma instructions
  std::uint64_t barriers = 0;              ///< __syncthreads, once per block; neither named barriers nor mbarriers
  std::uint64_t warp_operations = 0;       ///< shuffles, votes, reductions, __syncwarp, once per warp
  std::uint64_t atomics = 0;               ///< once per thread
  std::uint64_t launches = 0, blocks = 0, threads = 0;

  Counters& operator+=(const Counters& more) {
    for (const auto number :
         {&Counters::bank_conflicts, &Counters::tensor_core_products, &Counters::barriers, &Counters::warp_operations,
          &Counters::atomics, &Counters::launches, &Counters::blocks, &Counters::threads})
      this->*number += more.*number;
    for (const TensorTraffic& moved : more.traffic) {
      std::size_t i = 0;
      while (i < traffic.size() && traffic[i].tensor != moved.tensor) ++i;
      if (i == traffic.size()) traffic.push_back({moved.tensor});
      for (const auto number : {&TensorTraffic::read_bytes, &TensorTraffic::written_bytes, &TensorTraffic::read_sectors,
                                &TensorTraffic::written_sectors})
        traffic[i].*number += moved.*number;
    }
    return *this;
  }

  std::uint64_t read_bytes() const { return sum(&TensorTraffic::read_bytes); }
  std::uint64_t written_bytes() const { return sum(&TensorTraffic::written_bytes); }
  std::uint64_t sectors() const {  ///< read and written
    return sum(&TensorTraffic::read_sectors) + sum(&TensorTraffic::written_sectors);
  }

 private:
  std::uint64_t sum(std::uint64_t TensorTraffic::*number) const {
    std::uint64_t all = 0;
    for (const TensorTraffic& tensor : traffic) all += tensor.*number;
    return all;
  }
};

}  // namespace flash
