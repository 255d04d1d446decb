#include "common/attention/tensor.hpp"
#include "common/machine/isa/tensor_map.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace flash {
namespace {

alignas(16) char memory[64];

TensorRef tensor(const FullProblem& p, Role role) {
  return {memory, "K", Dtype::fp16, shape_of(p, role), placement_of(p, role).stride};
}

FullProblem problem(Layout layout, int d) {
  FullProblem p;
  p.B = 2, p.H = p.Hkv = 3, p.Nq = p.Nk = 50, p.d = d;
  p.layout = layout;
  return p;
}

}  // namespace

TEST_CASE("tensor maps: every layout whose rows are multiples of 16 bytes") {
  for (const Layout layout : {Layout::bhnd, Layout::bnhd, Layout::qkv, Layout::kv}) {
    for (const int d : {8, 64, 80, 256}) CHECK(why_no_tensor_map(tensor(problem(layout, d), Role::k)) == "");
    for (const int d : {1, 59, 100}) {
      CHECK(why_no_tensor_map(tensor(problem(layout, d), Role::k)) == "a stride is not a multiple of 16 bytes");
    }
  }
}

TEST_CASE("tensor maps: strides in bytes, and one that is never used is that of a dense tensor") {
  CHECK(tensor_map_strides(tensor(problem(Layout::bnhd, 64), Role::k)) == std::array<std::int64_t, 3>{384, 128, 19200});
  TensorRef one = tensor(problem(Layout::bhnd, 64), Role::k);
  one.shape[0] = one.shape[1] = 1;
  one.stride[0] = one.stride[1] = 0;
  CHECK(tensor_map_strides(one) == std::array<std::int64_t, 3>{128, 6400, 6400});
}

TEST_CASE("tensor maps: what is refused") {
  const TensorRef good = tensor(problem(Layout::bhnd, 64), Role::k);
  CHECK_NOTHROW(require_tensor_map(good, 256));
  CHECK_THROWS_AS(require_tensor_map(good, 257), std::logic_error);
  const std::pair<void (*)(TensorRef&), const char*> wrong[]{
      {[](TensorRef& t) { t.dtype = Dtype::fp32; }, "16 bits"},
      {[](TensorRef& t) { t.stride[3] = 2; }, "columns"},
      {[](TensorRef& t) { t.data = memory + 8; }, "address"},
      {[](TensorRef& t) { t.shape[1] = 0; }, "extent"},
      {[](TensorRef& t) { t.stride[0] = std::int64_t{1} << 39; }, "2^40"}};
  for (const auto& [change, names] : wrong) {
    TensorRef bad = good;
    change(bad);
    CHECK(why_no_tensor_map(bad).find(names) != std::string::npos);
    CHECK_THROWS_AS(require_tensor_map(bad, 64), std::logic_error);
  }
}

}  // namespace flash
