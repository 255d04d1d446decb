#define ASYNC_CASES gpu_async_cases
#include "common/machine/test/zoo_async_list.cuh"
