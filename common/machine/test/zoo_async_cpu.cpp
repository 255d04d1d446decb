#define ASYNC_CASES cpu_async_cases
#include "common/machine/test/zoo_async_list.cuh"
