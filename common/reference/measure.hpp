// The exact results of a problem beside those of the naive implementation, whole or on a sample. Internal to common/reference.
#pragma once

#include "common/reference/exact.hpp"
#include "common/reference/reference.hpp"

namespace flash {

struct Exact {
  Results<double> results;
  exact::Terms queries;  ///< for the rows of O, L and dQ
  exact::Terms keys;     ///< for the rows of dK and dV
};

/// reference() with the largest terms that occurred in each row.
template <class T>
Exact exact_results(const Problem&, const InputsOf<T>&, Pass);

struct Measured {
  Exact exact;
  Results<float> naive;
};

/// Both for the rows of a sample that is not whole, in tensors [1, 1, rows, d or 1] with the rows slice by slice.
///
/// Key gradients of the naive implementation start from the exact O and L, rounded to the types that store them: its own would
/// take a second pass over all pairs (query, key). This makes its error, and so the tolerance, a little smaller.
Measured measure_sample(const Problem&, const Inputs&, Pass, const Sample&);

}  // namespace flash
