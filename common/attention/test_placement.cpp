#include "common/attention/placement.hpp"

#include "common/attention/registry.hpp"

#include <doctest/doctest.h>

#include <string>

namespace flash {
namespace {

using Shape = std::array<std::int64_t, 4>;

}  // namespace

TEST_CASE("placements follow the order of axes that names the layout, and allocations hold what is packed in them") {
  FullProblem p;
  p.B = 2, p.H = 6, p.Hkv = 3, p.Nq = 7, p.Nk = 5, p.d = 4;
  CHECK(placement_of(p, Role::q).stride == Shape{168, 28, 4, 1});  // (B,H,N,d)
  CHECK(placement_of(p, Role::k).stride == Shape{60, 20, 4, 1});
  CHECK(allocation_elements(p, Role::k) == 120);
  p.layout = Layout::bnhd;
  CHECK(placement_of(p, Role::q).stride == Shape{168, 4, 24, 1});  // (B,N,H,d)
  CHECK(placement_of(p, Role::k).stride == Shape{60, 4, 12, 1});
  CHECK(allocation_elements(p, Role::k) == 120);
  p.layout = Layout::kv;
  CHECK(placement_of(p, Role::q).stride == Shape{168, 4, 24, 1});
  CHECK(placement_of(p, Role::k).offset == 0);
  CHECK(placement_of(p, Role::v).offset == 12);
  CHECK(placement_of(p, Role::v).stride == Shape{120, 4, 24, 1});  // (B,N,2,Hkv,d)
  CHECK(allocation_elements(p, Role::q) == 336);
  CHECK(allocation_elements(p, Role::v) == 240);
  p.layout = Layout::qkv;
  p.H = 3;
  p.Nq = 5;
  const std::int64_t offsets_qkv[] = {0, 12, 24};  // (B,N,3,H,d)
  for (const Role role : {Role::q, Role::k, Role::v}) {
    CHECK(placement_of(p, role).offset == offsets_qkv[static_cast<int>(role)]);
    CHECK(placement_of(p, role).stride == Shape{180, 4, 36, 1});
    CHECK(allocation_elements(p, role) == 360);
  }
  CHECK(placement_of(p, Role::o).stride == Shape{60, 4, 12, 1});
  CHECK(allocation_elements(p, Role::o) == 120);
}

TEST_CASE("offsets beyond 32 bits stay exact") {
  FullProblem p;
  p.B = 1 << 10, p.H = p.Hkv = 128, p.Nq = p.Nk = 1 << 14, p.d = 128;
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
