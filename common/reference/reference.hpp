// The yardstick: attention in double precision, and the results of a plain implementation of the same precision.
#pragma once

#include "common/attention/tensor_table.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace flash {

/// O, L and, for Pass::backward, dQ, dK, dV, and dBias if the problem asks for it, by a straightforward implementation that rounds as
/// one in problem.dtype would: fp32 arithmetic and sequential fp32 sums; with fp16/bf16 also P, dS and every output rounded to that
/// type (L stays fp32). Sets the tolerance.
Results<float> naive_same_precision(const FullProblem&, const Inputs&, Pass);

/// The scores of query i against all keys as a plain implementation has them in fp32, with their bias; -inf where a mask hides the key.
std::vector<float> scores_in_fp32(const FullProblem&, const Inputs&, int b, int h, int i);

/// Rows that are checked when a problem is too big to check whole.
struct Sample {
  bool whole = true;  ///< everything is checked; the lists are unused
  struct Slice {
    int b, h;                  ///< batch and query head
    std::vector<int> queries;  ///< rows of O, L, dQ
    std::vector<int> keys;     ///< rows of dK, dV of the key/value head of h; these need every query, so they cost most
  };
  std::vector<Slice> slices;
};

/// Everything, if the reference takes about a second; else a seeded choice of slices and rows that always includes the first
/// and the last batch, head, query and key. Slices are dropped, and keys in all but one slice, as far as time demands.
Sample choose_sample(const FullProblem&, Pass, std::uint64_t seed);

/// The element that decides: of those beyond their row's tolerance, the one farthest in proportion to it; else the one with the
/// largest error.
struct Worst {
  int b = 0, h = 0, row = 0, col = 0;
  double got = 0, expected = 0;
};

struct TensorCheck {
  std::string tensor;            ///< "o", "lse", "dq", "dk", "dv", "dbias"
  double max_abs = 0;            ///< |got - expected| of `worst`; infinity if any got is NaN
  double rel_l2 = 0;             ///< ||got - expected|| / ||expected||; infinity with any non-finite error
  double tolerance = 0;          ///< of the row of `worst`
  bool passed = false;           ///< every element is within its row's tolerance, and so max_abs <= tolerance
  std::int64_t non_finite = 0;   ///< elements of got that are NaN or infinite where expected is finite
  std::optional<double> factor;  ///< got is expected times this, nearly exactly, and that is why it is wrong
  Worst worst;
  std::vector<std::array<int, 3>> wrong_rows;  ///< batch, head and row of those that were compared
};

struct CheckReport {
  bool passed = false;
  bool sampled = false;
  std::vector<TensorCheck> tensors;
};

/// Knows what one problem's results must be; built once, it checks any number of variants.
class Checker {
 public:
  /// Runs the reference and the naive implementation on the sample.
  Checker(const FullProblem&, const Inputs&, Pass, const Sample&);

  /// Compares each row of a result with the reference: max|got - ref64| <= its tolerance (tolerance.hpp).
  /// Passes only if `diff <= tolerance` is true, so NaN fails. Equal infinities (L of a fully masked row) agree.
  /// Reports the tensors of which the sample has rows. Throws std::logic_error if a result has another shape.
  CheckReport check(const Results<float>& got) const;

 private:
  struct Row {
    int b, h, row;
  };
  struct Expected {
    const ProblemTensor* tensor;
    Dtype dtype;    ///< the type that holds the results
    Extents shape;  ///< of the whole tensor
    std::vector<Row> rows;
    std::vector<double> values;      ///< row by row, in the order of `rows`
    std::vector<double> tolerances;  ///< of each row
  };
  static TensorCheck compare(const Expected&, const HostTensor<float>& got);

  bool sampled_;
  std::vector<Expected> expected_;
};

}  // namespace flash
