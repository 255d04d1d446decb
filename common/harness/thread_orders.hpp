// Does a result depend on the order of the threads?
#pragma once

#include "common/harness/runner.hpp"

#include <string>

namespace flash {

/// A sentence about an order in which the variant gives another result than `usual`; "" if it gives the same, to the last bit, in all orders
/// that are tried.
std::string order_that_differs(Runner&, const Variant&, const Results<float>& usual);

}  // namespace flash
