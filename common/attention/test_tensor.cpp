#include "common/attention/tensor.hpp"

#include "common/attention/variant.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

namespace flash {
namespace {

using Shape = std::array<std::int64_t, 4>;

/// Elements that a tensor occupies in its allocation, in the order (b, h, row, col).
std::vector<std::int64_t> offsets(const FullProblem& p, Role role) {
  const Shape shape = shape_of(p, role);
  const Placement place = placement_of(p, role);
  std::vector<std::int64_t> result;
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    for (std::int64_t h = 0; h < shape[1]; ++h) {
      for (std::int64_t row = 0; row < shape[2]; ++row) {
        for (std::int64_t col = 0; col < shape[3]; ++col) {
          result.push_back(place.offset + b * place.stride[0] + h * place.stride[1] + row * place.stride[2] +
                           col * place.stride[3]);
        }
      }
    }
  }
  return result;
}

/// Which tensors share an allocation, as the layouts define it.
std::vector<std::vector<Role>> allocations(Layout layout) {
  if (layout == Layout::qkv) return {{Role::q, Role::k, Role::v}, {Role::o}};
  if (layout == Layout::kv) return {{Role::q}, {Role::k, Role::v}, {Role::o}};
  return {{Role::q}, {Role::k}, {Role::v}, {Role::o}};
}

}  // namespace

TEST_CASE("the tensors of each allocation are disjoint and fill it exactly") {
  for (const Layout layout : {Layout::bhnd, Layout::bnhd, Layout::qkv, Layout::kv}) {
    FullProblem p;
    p.B = 2;
    p.H = 6;
    p.Hkv = layout == Layout::qkv ? 6 : 3;
    p.Nq = 5;
    p.Nk = layout == Layout::qkv ? 5 : 7;
    p.d = 4;
    p.layout = layout;
    CAPTURE(to_string(layout));
    for (const std::vector<Role>& roles : allocations(layout)) {
      std::vector<std::int64_t> all;
      for (const Role role : roles) {
        const std::vector<std::int64_t> own = offsets(p, role);
        all.insert(all.end(), own.begin(), own.end());
        CHECK(allocation_elements(p, role) == allocation_elements(p, roles.front()));
      }
      std::sort(all.begin(), all.end());
      REQUIRE(static_cast<std::int64_t>(all.size()) == allocation_elements(p, roles.front()));
      for (std::size_t n = 0; n < all.size(); ++n) REQUIRE(all[n] == static_cast<std::int64_t>(n));
    }
  }
}

TEST_CASE("placements follow the order of axes that names the layout") {
  FullProblem p;
  p.B = 2;
  p.H = p.Hkv = 3;
  p.Nq = p.Nk = 5;
  p.d = 4;
  CHECK(placement_of(p, Role::k).stride == Shape{60, 20, 4, 1});  // (B,H,N,d)
  p.layout = Layout::bnhd;
  CHECK(placement_of(p, Role::k).stride == Shape{60, 4, 12, 1});  // (B,N,H,d)
  p.layout = Layout::qkv;
  const std::int64_t offsets_qkv[] = {0, 12, 24};  // (B,N,3,H,d)
  for (const Role role : {Role::q, Role::k, Role::v}) {
    CHECK(placement_of(p, role).offset == offsets_qkv[static_cast<int>(role)]);
    CHECK(placement_of(p, role).stride == Shape{180, 4, 36, 1});
  }
  CHECK(placement_of(p, Role::o).stride == Shape{60, 4, 12, 1});
  p.layout = Layout::kv;
  CHECK(placement_of(p, Role::q).stride == Shape{60, 4, 12, 1});
  CHECK(placement_of(p, Role::k).offset == 0);
  CHECK(placement_of(p, Role::v).offset == 12);
  CHECK(placement_of(p, Role::v).stride == Shape{120, 4, 24, 1});  // (B,N,2,Hkv,d)
}

TEST_CASE("offsets beyond 32 bits stay exact") {
  FullProblem p;
  REQUIRE(set_sizes(p, {.batch = 1 << 10, .heads = 128, .seq_q = 1 << 14, .seq_k = 1 << 14, .head_dim = 128}) == "");
  CHECK(placement_of(p, Role::q).stride[0] == std::int64_t{1} << 28);
  CHECK(allocation_elements(p, Role::q) == std::int64_t{1} << 38);
}

TEST_CASE("variants are listed in the order of their numbers") {
  REQUIRE(variants(Backend::gpu).empty());
  static const Variant a{.name = "first", .idea = "", .forward = nullptr}, b{.name = "second", .idea = "", .forward = nullptr},
      c{.name = "tenth", .idea = "", .forward = nullptr};
  const RegisterVariant second(Backend::gpu, 2, b), first(Backend::gpu, 1, a), tenth(Backend::gpu, 10, c);
  REQUIRE(variants(Backend::gpu).size() == 3);
  CHECK(std::string(variants(Backend::gpu)[0].name) == "first");
  CHECK(std::string(variants(Backend::gpu)[1].name) == "second");
  CHECK(std::string(variants(Backend::gpu)[2].name) == "tenth");
  CHECK(variants(Backend::cpu).empty());
  CHECK(name_clash(Backend::gpu).empty());
  const RegisterVariant third(Backend::gpu, 3, a, "3_mine.cuh");
  CHECK(name_clash(Backend::gpu).find("3_mine.cuh both have a variant 'first'") != std::string::npos);
}

}  // namespace flash
