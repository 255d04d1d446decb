#define PRIMITIVES_OF gpu_primitives
#include "common/simt/test/primitives_list.cuh"
