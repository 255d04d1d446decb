#define ASYNC_CASES cpu_async_cases
#include "common/simt/test/zoo_async_list.cuh"
