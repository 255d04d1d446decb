#define PRIMITIVES_OF gpu_primitives
#include "common/machine/test/primitives_list.cuh"
