// Each typical mistake of a kernel must fail the check, in every dtype: the tolerances are not too wide.
#include "common/reference/test_fixture.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace flash {
namespace {

using test::failed;
using test::Fixture;
using test::infinity;

/// The right results, but dQ and dK with dS = P o (dP + factor * D), summed in double: right for factor = -1.
Results<float> with_score_gradients(const Fixture& f, double factor) {
  Results<float> got = f.right;
  const FullProblem& p = f.p;
  const Results<double> exact = reference(p, f.inputs, Pass::forward);
  const double scale = p.scale;
  std::fill(got.dQ.values.begin(), got.dQ.values.end(), 0.0f);
  std::fill(got.dK.values.begin(), got.dK.values.end(), 0.0f);
  for (int b = 0; b < p.B; ++b) {
    for (int h = 0; h < p.H; ++h) {
      const int g = p.kv_head(h);
      for (int i = 0; i < p.Nq; ++i) {
        for (int j = 0; j < p.end_key(i); ++j) {
          double S = 0, dP = 0, D = 0;
          for (int c = 0; c < p.d; ++c) {
            S += scale * f.inputs.Q(b, h, i, c) * f.inputs.K(b, g, j, c);
            dP += static_cast<double>(f.inputs.dO(b, h, i, c)) * f.inputs.V(b, g, j, c);
            D += static_cast<double>(f.inputs.dO(b, h, i, c)) * exact.O(b, h, i, c);
          }
          const double dS = std::exp(S - exact.L(b, h, i, 0)) * (dP + factor * D);
          for (int c = 0; c < p.d; ++c) {
            got.dQ(b, h, i, c) += static_cast<float>(scale * dS * f.inputs.K(b, g, j, c));
            got.dK(b, g, j, c) += static_cast<float>(scale * dS * f.inputs.Q(b, h, i, c));
          }
        }
      }
    }
  }
  return got;
}

struct Mistake {
  const char* name;
  Results<float> (*results)(const Fixture&);  ///< what a kernel with this mistake would give
  const char* failing;                        ///< the tensors that must fail
};

Results<float> naive(const FullProblem& p, const Inputs& inputs) { return naive_same_precision(p, inputs, Pass::backward); }

const Mistake mistakes[] = {
    {"scale missing",
     [](const Fixture& f) {
       FullProblem p = f.p;
       p.scale = 1.0f;
       return naive(p, f.inputs);
     },
     "o lse dq dk dv "},
    {"causal mask missing",
     [](const Fixture& f) {
       FullProblem p = f.p;
       p.causal = false;
       return naive(p, f.inputs);
     },
     "o lse dq dk dv "},
    {"the last query misses its first key: a window that begins one too late",
     [](const Fixture& f) {
       FullProblem p = f.p;
       p.window.left = f.p.Nk - 2;  // hides the first key from the last query
       return naive(p, f.inputs);
     },
     "o lse dq dk dv "},
    {"each query sees one key too few",
     [](const Fixture& f) {
       FullProblem p = f.p;
       Inputs inputs = f.inputs;
       p.bias = BiasKind::matrix;
       inputs.bias = HostTensor<float>({1, 1, p.Nq, p.Nk}, 0.0f);
       for (int i = p.Nq - p.Nk; i < p.Nq; ++i) inputs.bias(0, 0, i, i + p.Nk - p.Nq) = -infinity;
       return naive(p, inputs);
     },
     "o lse dq dk dv "},
    {"two rows of V swapped",
     [](const Fixture& f) {
       Inputs inputs = f.inputs;
       for (int c = 0; c < f.p.d; ++c) std::swap(inputs.V(1, 1, 3, c), inputs.V(1, 1, 4, c));
       return naive(f.p, inputs);
     },
     "o dq dk "},
    {"wrong key/value head",
     [](const Fixture& f) {
       Inputs inputs = f.inputs;
       const auto head = inputs.K.values.begin();
       std::copy_n(head, f.p.Nk * f.p.d, head + f.p.Nk * f.p.d);
       return naive(f.p, inputs);
     },
     "o lse dq dk dv "},
    {"dV from a wrong row of dO",
     [](const Fixture& f) {
       Inputs inputs = f.inputs;
       for (int c = 0; c < f.p.d; ++c) std::swap(inputs.dO(1, 3, 10, c), inputs.dO(1, 3, 11, c));
       Results<float> got = f.right;
       got.dV = naive(f.p, inputs).dV;
       return got;
     },
     "dv "},
    {"dK and dV lack one query head of the group",
     [](const Fixture& f) {
       Inputs inputs = f.inputs;
       for (int i = 0; i < f.p.Nq; ++i) {
         for (int c = 0; c < f.p.d; ++c) inputs.dO(1, 1, i, c) = 0.0f;
       }
       const Results<float> spoiled = naive(f.p, inputs);
       Results<float> got = f.right;
       got.dK = spoiled.dK;
       got.dV = spoiled.dV;
       return got;
     },
     "dk dv "},
    {"dK without scale",
     [](const Fixture& f) {
       Results<float> got = f.right;
       for (float& value : got.dK.values) value /= f.p.scale;
       return got;
     },
     "dk "},
    {"dS = P o (dP + D)", [](const Fixture& f) { return with_score_gradients(f, +1); }, "dq dk "},
    {"dS = P o dP", [](const Fixture& f) { return with_score_gradients(f, 0); }, "dq dk "},
    {"L in base 2",
     [](const Fixture& f) {
       Results<float> got = f.right;
       for (float& value : got.L.values) value *= 1.442695f;
       return got;
     },
     "lse "},
    {"dV never written",
     [](const Fixture& f) {
       Results<float> got = f.right;
       std::fill(got.dV.values.begin(), got.dV.values.end(), 0.0f);
       return got;
     },
     "dv "},
};

}  // namespace

TEST_CASE("typical mistakes of kernels fail in every dtype, in the tensors that they touch and in no others") {
  for (const Dtype dtype : {Dtype::fp32, Dtype::fp16, Dtype::bf16}) {
    const Fixture f(dtype);
    CAPTURE(to_string(dtype));
    for (const Mistake& mistake : mistakes) {
      CAPTURE(mistake.name);
      CHECK(failed(f.check(mistake.results(f))) == mistake.failing);
    }
  }
}

TEST_CASE("a right result computed in another order passes") {
  const Fixture f;
  CHECK(failed(f.check(with_score_gradients(f, -1))) == "");
}

}  // namespace flash
