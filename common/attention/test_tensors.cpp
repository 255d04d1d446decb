#include "common/attention/tensor_table.hpp"

#include "common/attention/registry.hpp"
#include "common/machine/error.hpp"

#include <doctest/doctest.h>

#include <string>

namespace flash {

TEST_CASE("placement: it follows the order of axes that names the layout, and allocations hold what is packed in them") {
  FullProblem p;
  p.B = 2, p.H = 6, p.Hkv = 3, p.Nq = 7, p.Nk = 5, p.d = 4;
  const auto lies = [&](Role role, std::int64_t offset, const Extents& stride, std::int64_t elements) {
    const Placement placement = placement_of(p, role);
    return placement.offset == offset && placement.stride == stride && placement.elements == elements;
  };
  CHECK(lies(Role::q, 0, {168, 28, 4, 1}, 336));  // (B,H,N,d)
  CHECK(lies(Role::k, 0, {60, 20, 4, 1}, 120));
  p.layout = Layout::bnhd;
  CHECK(lies(Role::q, 0, {168, 4, 24, 1}, 336));  // (B,N,H,d)
  CHECK(lies(Role::k, 0, {60, 4, 12, 1}, 120));
  p.layout = Layout::kv;
  CHECK(lies(Role::q, 0, {168, 4, 24, 1}, 336));
  CHECK(lies(Role::k, 0, {120, 4, 24, 1}, 240));  // (B,N,2,Hkv,d)
  CHECK(lies(Role::v, 12, {120, 4, 24, 1}, 240));
  p.layout = Layout::qkv;
  p.H = 3, p.Nq = 5;
  CHECK(lies(Role::q, 0, {180, 4, 36, 1}, 360));  // (B,N,3,H,d)
  CHECK(lies(Role::k, 12, {180, 4, 36, 1}, 360));
  CHECK(lies(Role::v, 24, {180, 4, 36, 1}, 360));
  CHECK(lies(Role::o, 0, {60, 4, 12, 1}, 120));
}

TEST_CASE("placement: offsets beyond 32 bits stay exact") {
  FullProblem p;
  p.B = 1 << 10, p.H = p.Hkv = 128, p.Nq = p.Nk = 1 << 14, p.d = 128;
  CHECK(placement_of(p, Role::q).stride[0] == std::int64_t{1} << 28);
  CHECK(placement_of(p, Role::q).elements == std::int64_t{1} << 38);
}

TEST_CASE("registry: variants are listed in order, two of the same name are refused, and one is chosen by what they say") {
  REQUIRE(variants(Backend::gpu).empty());
  const auto pass = [](const Attention&) {};
  const auto of_forward = [](const FullProblem&, Pass of) { return of == Pass::forward; };
  static const Variant a{.name = "first", .idea = "", .forward = pass, .backward = pass, .fastest = of_forward},
      b{.name = "second", .idea = "", .forward = pass, .backward = pass, .fastest = of_forward},
      c{.name = "third", .idea = "", .forward = pass, .backward = pass, .fastest = of_forward};
  const RegisterVariants all(Backend::gpu, {{&a, "1_first.cuh"}, {&b, "stage/more/second.cuh"}, {&c, "3_third.cuh"}});
  CHECK(joined(variants(Backend::gpu), [](const Variant& v) { return v.name; }) == "first, second, third");
  CHECK(variants(Backend::cpu).empty());
  // By default the last step of the ladder; of dQ in a fixed order, one of more/.
  const auto chosen = [](bool deterministic) {
    return std::string(choose_variant(Backend::gpu, "", FullProblem(), Pass::backward, DeviceLimits(), deterministic).name);
  };
  CHECK((chosen(false) == "third" && chosen(true) == "second"));
  // Of those that call themselves the fastest, the one of more/.
  CHECK(fastest_variant(Backend::gpu, FullProblem(), Pass::forward, DeviceLimits())->name == std::string("second"));
  CHECK(fastest_variant(Backend::gpu, FullProblem(), Pass::backward, DeviceLimits()) == nullptr);
  const RegisterVariants same_name(Backend::gpu, {{&a, "3_mine.cuh"}});
  CHECK_THROWS_AS(variants(Backend::gpu), UsageError);
}

}  // namespace flash
