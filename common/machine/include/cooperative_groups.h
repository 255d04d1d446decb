// Cooperative groups: block, tile, coalesced threads, grid, with reduce and scans. A group's operations are those of the block or the warp, so
// what they break is reported as there.
#pragma once

#include <cuda_runtime.h>

namespace flash::plain {
void sync_grid(Site);
using ::flash::Site;
}  // namespace flash::plain

namespace cooperative_groups {

using flash::Site, flash::plain::thread_rank;
#define FLASH_HERE Site site = Site::here()

struct thread_block {
  static constexpr unsigned long long flash_mask() { return ~0ull; }
  static void sync(FLASH_HERE) { __syncthreads(site); }
  static unsigned thread_rank() { return flash::plain::thread_rank(); }
  static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned num_threads() { return size(); }
  static dim3 group_index() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
  static dim3 thread_index() { return {threadIdx.x, threadIdx.y, threadIdx.z}; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
  struct arrival_token {};
  static arrival_token barrier_arrive() { return {}; }
  static void barrier_wait(arrival_token&&, FLASH_HERE) { __syncthreads(site); }
  static void barrier_wait(FLASH_HERE) { __syncthreads(site); }
};
inline thread_block this_thread_block() { return {}; }
template <unsigned Threads>
struct block_tile_memory {};
template <unsigned Threads>
thread_block this_thread_block(block_tile_memory<Threads>&) {
  return {};
}

/// Some lanes of the thread's warp, in ascending order.
struct flash_lanes {
  unsigned lanes;

  void sync(FLASH_HERE) const { __syncwarp(lanes, site); }
  unsigned size() const { return static_cast<unsigned>(__popc(lanes)); }
  unsigned num_threads() const { return size(); }
  unsigned thread_rank() const { return static_cast<unsigned>(__popc(lanes & flash::plain::special_lanemask_lt())); }
  int any(int predicate, FLASH_HERE) const { return __any_sync(lanes, predicate, site); }
  int all(int predicate, FLASH_HERE) const { return __all_sync(lanes, predicate, site); }
  unsigned ballot(int predicate, FLASH_HERE) const { return packed(__ballot_sync(lanes, predicate, site)); }
  template <class T>
  unsigned match_any(T value, FLASH_HERE) const {
    return packed(__match_any_sync(lanes, value, site));
  }
  template <class T>
  unsigned match_all(T value, int& all, FLASH_HERE) const {
    return packed(__match_all_sync(lanes, value, &all, site));
  }
  template <class T>
  T shfl(T value, unsigned rank, FLASH_HERE) const {
    return from(value, rank % size(), site);
  }
  template <class T>
  T shfl_up(T value, unsigned by, FLASH_HERE) const {
    const unsigned rank = thread_rank();
    return from(value, rank < by ? rank : rank - by, site);
  }
  template <class T>
  T shfl_down(T value, unsigned by, FLASH_HERE) const {
    const unsigned rank = thread_rank();
    return from(value, rank + by < size() ? rank + by : rank, site);
  }
  template <class T>
  T shfl_xor(T value, unsigned bits, FLASH_HERE) const {
    const unsigned rank = thread_rank();
    return from(value, (rank ^ bits) < size() ? rank ^ bits : rank, site);
  }

 private:
  /// The lanes in a mask, as ranks.
  unsigned packed(unsigned of) const {
    unsigned result = 0, rank = 0;
    for (unsigned rest = lanes; rest != 0; rest &= rest - 1, ++rank) result |= (of >> __builtin_ctz(rest) & 1u) << rank;
    return result;
  }
  template <class T>
  T from(T value, unsigned rank, Site site) const {
    unsigned rest = lanes;
    while (rank-- > 0) rest &= rest - 1;
    const int lane = __builtin_ctz(rest);
    if constexpr (sizeof(T) <= 8) {
      return __shfl_sync(lanes, value, lane, 32, site);
    } else {
      unsigned words[(sizeof(T) + 3) / 4] = {};
      __builtin_memcpy(words, &value, sizeof value);
      for (unsigned& word : words) word = __shfl_sync(lanes, word, lane, 32, site);
      __builtin_memcpy(static_cast<void*>(&value), words, sizeof value);
      return value;
    }
  }
};

struct coalesced_group : flash_lanes {
  unsigned meta_group_size() const { return 1; }
  unsigned meta_group_rank() const { return 0; }
};
inline coalesced_group coalesced_threads(FLASH_HERE) { return {{__activemask(site)}}; }

inline unsigned flash_tile(unsigned size) {
  const unsigned all = size >= 32 ? ~0u : (1u << size) - 1, present = thread_block::size() - thread_rank() / 32 * 32;
  return all << thread_rank() % 32 / size * size & (present >= 32 ? ~0u : (1u << present) - 1);
}
template <unsigned Size, class Parent = thread_block>
struct thread_block_tile : flash_lanes {
  static_assert(Size <= 32 && (Size & (Size - 1)) == 0, "tiles of up to 32 threads are simulated");
  thread_block_tile() : flash_lanes{flash_tile(Size)} {}
  template <class Other>
  thread_block_tile(const thread_block_tile<Size, Other>&) : thread_block_tile() {}
  static constexpr unsigned size() { return Size; }
  static constexpr unsigned num_threads() { return Size; }
  static unsigned thread_rank() { return flash::plain::thread_rank() % Size; }
  static unsigned meta_group_rank() { return flash::plain::thread_rank() / Size; }
  static unsigned meta_group_size() { return (thread_block::size() + Size - 1) / Size; }
};
/// A block or a part of a warp, as known at run time.
struct thread_group : flash_lanes {
  bool block = true;
  thread_group(thread_block) : flash_lanes{~0u} {}
  thread_group(const flash_lanes& some) : flash_lanes(some), block(false) {}
  unsigned size() const { return block ? thread_block::size() : flash_lanes::size(); }
  unsigned thread_rank() const { return block ? flash::plain::thread_rank() : flash_lanes::thread_rank(); }
  void sync(FLASH_HERE) const { block ? __syncthreads(site) : flash_lanes::sync(site); }
};
template <unsigned Size, class Parent>
thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
  return {};
}
inline thread_group tiled_partition(const thread_group&, unsigned size) { return flash_lanes{flash_tile(size)}; }
template <class Group>
coalesced_group labeled_partition(const Group& group, int label, FLASH_HERE) {
  return {{__match_any_sync(group.lanes, label, site)}};
}
template <class Group>
coalesced_group binary_partition(const Group& group, bool predicate, FLASH_HERE) {
  return labeled_partition(group, predicate, site);
}

struct grid_group {
  static bool is_valid() { return true; }
  static void sync(FLASH_HERE) { flash::plain::sync_grid(site); }
  static unsigned long long num_blocks() { return 1ull * gridDim.x * gridDim.y * gridDim.z; }
  static unsigned long long block_rank() { return blockIdx.x + 1ull * gridDim.x * (blockIdx.y + 1ull * gridDim.y * blockIdx.z); }
  static unsigned long long size() { return num_blocks() * thread_block::size(); }
  static unsigned long long num_threads() { return size(); }
  static unsigned long long thread_rank() { return block_rank() * thread_block::size() + flash::plain::thread_rank(); }
  static dim3 group_dim() { return gridDim; }
  static dim3 dim_blocks() { return gridDim; }
  static dim3 block_index() { return thread_block::group_index(); }
};
inline grid_group this_grid() { return {}; }

template <class Group>
void sync(const Group& group, FLASH_HERE) {
  group.sync(site);
}
template <class Group, class F>
void invoke_one(const Group& group, F f) {
  if (group.thread_rank() == 0) f();
}

#define FLASH_OPERATION(name, value) \
  template <class T = void>          \
  struct name {                      \
    T operator()(T a, T b) const { return value; } \
  };
FLASH_OPERATION(plus, a + b)
FLASH_OPERATION(less, b < a ? b : a)
FLASH_OPERATION(greater, a < b ? b : a)
FLASH_OPERATION(bit_and, a& b)
FLASH_OPERATION(bit_or, a | b)
FLASH_OPERATION(bit_xor, a ^ b)

template <class Group, class T, class Operation>
T reduce(const Group& group, T value, Operation operation, FLASH_HERE) {
  T result = group.shfl(value, 0, site);
  for (unsigned rank = 1; rank < group.size(); ++rank) result = operation(result, group.shfl(value, rank, site));
  return result;
}
template <class Group, class T, class Operation>
T inclusive_scan(const Group& group, T value, Operation operation, FLASH_HERE) {
  for (unsigned by = 1; by < group.size(); by *= 2) {
    const T before = group.shfl_up(value, by, site);
    if (group.thread_rank() >= by) value = operation(before, value);
  }
  return value;
}
template <class Group, class T>
T inclusive_scan(const Group& group, T value, FLASH_HERE) {
  return inclusive_scan(group, value, plus<T>(), site);
}
template <class Group, class T, class Operation>
T exclusive_scan(const Group& group, T value, Operation operation, FLASH_HERE) {
  const T before = group.shfl_up(inclusive_scan(group, value, operation, site), 1, site);
  return group.thread_rank() == 0 ? T{} : before;
}
template <class Group, class T>
T exclusive_scan(const Group& group, T value, FLASH_HERE) {
  return exclusive_scan(group, value, plus<T>(), site);
}
/// The threads copy in turn, with cp.async where it can.
template <class Group, class T, class Size>
void memcpy_async(const Group& group, T* to, const T* from, Size bytes, FLASH_HERE) {
  flash::plain::copy_async(to, from, bytes, group.thread_rank(), group.size(), site);
}
template <class Group>
void wait(const Group& group, FLASH_HERE) {
  flash::cp_async_wait_all();
  group.sync(site);
}
template <unsigned Newest, class Group>
void wait_prior(const Group& group, FLASH_HERE) {
  flash::plain::cp_async_wait(Newest);
  group.sync(site);
}

}  // namespace cooperative_groups
