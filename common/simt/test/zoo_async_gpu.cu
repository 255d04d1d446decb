#define ASYNC_CASES gpu_async_cases
#include "common/simt/test/zoo_async_list.cuh"
