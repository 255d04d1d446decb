// The functions below cuda::pipeline.
#pragma once

#include <cuda/pipeline>

FLASH_INLINE void __pipeline_memcpy_async(void* to, const void* from, std::size_t bytes, std::size_t zeros = 0,
                                          flash::Site site = flash::Site::here()) {
  flash::plain::cp_async(to, from, static_cast<int>(bytes), static_cast<int>(bytes - zeros), site);
}
inline void __pipeline_commit() { flash::cp_async_commit(); }
inline void __pipeline_wait_prior(std::size_t newest) { flash::plain::cp_async_wait(static_cast<int>(newest)); }
