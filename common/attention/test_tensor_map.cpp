#include "common/attention/placement.hpp"
#include "common/machine/isa/tensor_map.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace flash {

TEST_CASE("tensor maps: strides in bytes, and what is refused") {
  alignas(16) static char memory[64];
  FullProblem p;
  p.B = 2, p.H = p.Hkv = 3, p.Nq = p.Nk = 50, p.d = 64;
  p.layout = Layout::bnhd;
  const TensorRef good{memory, "K", Dtype::fp16, shape_of(p, Role::k), placement_of(p, Role::k).stride};
  CHECK(tensor_map_strides(good) == std::array<std::int64_t, 3>{384, 128, 19200});
  TensorRef one = good;  // a stride that is never used is that of a dense tensor
  one.shape[0] = one.shape[1] = 1;
  one.stride[0] = one.stride[1] = 0, one.stride[2] = 64;
  CHECK(tensor_map_strides(one) == std::array<std::int64_t, 3>{128, 6400, 6400});

  CHECK_NOTHROW(require_tensor_map(good, 256));
  CHECK_THROWS_AS(require_tensor_map(good, 257), std::logic_error);
  const std::pair<void (*)(TensorRef&), const char*> wrong[]{
      {[](TensorRef& t) { t.dtype = Dtype::fp32; }, "16 bits"},
      {[](TensorRef& t) { t.stride[3] = 2; }, "columns"},
      {[](TensorRef& t) { t.data = memory + 8; }, "address"},
      {[](TensorRef& t) { t.shape[1] = 0; }, "extent"},
      {[](TensorRef& t) { t.stride[1] = 59; }, "a stride is not a multiple of 16 bytes"},
      {[](TensorRef& t) { t.stride[0] = std::int64_t{1} << 39; }, "2^40"}};
  for (const auto& [change, names] : wrong) {
    TensorRef bad = good;
    change(bad);
    CHECK(why_no_tensor_map(bad).find(names) != std::string::npos);
    CHECK_THROWS_AS(require_tensor_map(bad, 64), std::logic_error);
  }
}

}  // namespace flash
