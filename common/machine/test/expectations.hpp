// What each thread of a primitive kernel must write, worked out lane by lane from the CUDA Programming Guide and the PTX ISA.
#pragma once

#include <bit>
#include <map>
#include <string>
#include <vector>

namespace flash {

using Words = std::vector<unsigned>;

/// The output words of one thread, from the kernel's input.
using Expectation = Words (*)(const Words& in, int thread);

const std::map<std::string, Expectation>& warp_expectations();
const std::map<std::string, Expectation>& tensor_expectations();
const std::map<std::string, Expectation>& hopper_expectations();

inline unsigned bits(float x) { return std::bit_cast<unsigned>(x); }
inline unsigned at(const Words& in, int i) { return in[static_cast<std::size_t>(i)]; }

}  // namespace flash
