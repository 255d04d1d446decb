// Each typical mistake of a kernel must fail the check, in every dtype: the tolerances are not too wide.
#include "common/reference/test_fixture.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>

namespace flash {
namespace {

using test::failed;
using test::Fixture;
using test::infinity;

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

}  // namespace flash
