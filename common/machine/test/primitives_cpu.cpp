#define PRIMITIVES_OF cpu_primitives
#include "common/machine/test/primitives_list.cuh"
