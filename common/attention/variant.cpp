#include "common/attention/variant.hpp"

#include <algorithm>
#include <array>

namespace flash {
namespace {

struct Registry {
  std::vector<int> numbers;  // ascending; numbers[i] belongs to variants[i]
  std::vector<Variant> variants;
};

/// A function's static, so that it exists before the first registration, whichever source file is initialised first.
Registry& registry(Backend backend) {
  static std::array<Registry, 2> registries;
  return registries[backend == Backend::gpu ? 0 : 1];
}

}  // namespace

const std::vector<Variant>& variants(Backend backend) { return registry(backend).variants; }

RegisterVariant::RegisterVariant(Backend backend, int number, const Variant& variant, const char* file) {
  auto& [numbers, variants] = registry(backend);
  const auto place = std::upper_bound(numbers.begin(), numbers.end(), number) - numbers.begin();
  numbers.insert(numbers.begin() + place, number);
  variants.insert(variants.begin() + place, variant)->file = file;
}

}  // namespace flash
