// For kernels: who holds what of a fragment, and the XOR swizzle. The simulator uses these functions too, so they lie below
// both.
#pragma once

#include "common/attention/fragments.hpp"
