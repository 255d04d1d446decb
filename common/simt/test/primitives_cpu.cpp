#define PRIMITIVES_OF cpu_primitives
#include "common/simt/test/primitives_list.cuh"
