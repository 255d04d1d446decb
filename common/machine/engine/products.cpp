// One product of a warpgroup: what it reads, and what it computes.
#include "common/machine/cpu/thread.hpp"
#include "common/machine/engine/warpgroups.hpp"
#include "common/machine/isa/float16.hpp"
#include "common/machine/isa/fragments.hpp"

#include <algorithm>
#include <cstring>

namespace flash::machine {

Warpgroups::Product Warpgroups::make_product(const WgmmaThread& part, Site site) const {
  Product product;
  product.site = site;
  product.type = part.type;
  product.n = part.n;
  product.accumulate = part.accumulate;
  product.a_shared = part.a_registers == nullptr;
  product.a_major = part.a_major;
  product.b_major = part.b_major;
  product.a = std::uint64_t{part.a.high} << 32 | part.a.low;
  product.b = std::uint64_t{part.b.high} << 32 | part.b.low;
  if (product.a_shared) product.a_units = units_of(product.a, product.a_major, 64, site);
  product.b_units = units_of(product.b, product.b_major, product.n, site);
  product.words = words_of(product);
  const auto n = static_cast<std::size_t>(product.n);
  const auto number = [&](std::size_t first, Major major, std::size_t lines, std::size_t line, std::size_t k) {
    const std::uint16_t bits = product.words[major == Major::k ? first + line * 16 + k : first + k * lines + line];
    return product.type == MmaType::f16 ? half_to_float(bits) : bfloat16_to_float(bits);
  };
  if (product.a_shared) {
    product.A.resize(64 * 16);
    for (std::size_t i = 0; i < product.A.size(); ++i) product.A[i] = number(0, product.a_major, 64, i / 16, i % 16);
  }
  product.B.resize(16 * n);
  for (std::size_t i = 0; i < product.B.size(); ++i)
    product.B[i] = number(product.a_shared ? 64 * 16 : 0, product.b_major, n, i % n, i / n);
  for (std::size_t warp = 0; warp < 4 && instruments.watch != nullptr; ++warp) product.reads[warp] = reads_of(product, warp);
  return product;
}

/// Chunk by chunk where an operand of `lines` rows of A, or columns of B, lies: along the depth, or across it (Major::mn).
AsyncProxy::Units Warpgroups::units_of(std::uint64_t descriptor, Major major, int lines, Site site) const {
  const auto field = [&](int bit) { return static_cast<std::uint32_t>(descriptor >> bit & 0x3FFF) * 16; };
  const std::uint32_t start = field(0), leading = field(16), stride = field(32);
  if (descriptor >> 62 != 1)
    simt::fail(RuleId::bad_argument, site, "wgmma: a descriptor of another swizzle than that of 128 bytes");
  if ((start >> 7 & 7) != 0)
    simt::fail(
        RuleId::misaligned, site,
        "wgmma: an operand at byte " + std::to_string(start) + " of shared memory: its tile must begin at a multiple of 1024");
  AsyncProxy::Units units;
  const auto add = [&](std::uint32_t at) {
    units.push_back((at ^ (at >> 7 & 7) << 4) / 16);
    if (!proxy_.contains(proxy_.address_of(units.back())))
      simt::fail(RuleId::out_of_bounds, site, "wgmma: an operand leaves dynamic shared memory at byte " + std::to_string(at));
  };
  const auto count = static_cast<std::uint32_t>(lines);
  if (major == Major::k) {
    for (std::uint32_t i = 0; i < count; ++i) {
      for (std::uint32_t chunk = 0; chunk < 2; ++chunk) add(start + i / 8 * stride + i % 8 * 128 + chunk * 16);
    }
  } else {
    for (std::uint32_t k = 0; k < 16; ++k) {
      for (std::uint32_t i = 0; i < count; i += 8) add(start + i / 64 * leading + k / 8 * stride + k % 8 * 128 + i % 64 * 2);
    }
  }
  return units;
}

std::vector<std::uint16_t> Warpgroups::words_of(const Product& product) const {
  std::vector<std::uint16_t> words(8 * (product.a_units.size() + product.b_units.size()));
  std::size_t at = 0;
  for (const auto* units : {&product.a_units, &product.b_units}) {
    for (const std::uint32_t unit : *units) {
      std::memcpy(&words[at], proxy_.address_of(unit), AsyncProxy::unit_bytes);
      at += 8;
    }
  }
  return words;
}

/// 16 rows of one product, and the end of its part for each lane. Sums in double, rounded once for the 16 of the depth.
void Warpgroups::compute(int warp, const Product& product, std::size_t number) {
  if (words_of(product) != product.words)
    simt::fail(RuleId::in_flight, product.site,
               "wgmma: shared memory that it reads was changed before the product was waited for");
  const int n = product.n;
  std::array<std::array<double, 256>, 16> D{};
  std::array<std::array<float, 16>, 16> A{};
  const auto row_of = [](int thread, int reg) { return static_cast<std::size_t>(fragment::wgmma_row(thread % 32, reg)); };
  const auto col_of = [](int thread, int reg) { return static_cast<std::size_t>(fragment::wgmma_col(thread, reg)); };
  for (int i = 0; i < 32; ++i) {
    Lane& self = lane(warp * 32 + i);
    const Lane::Part& part = self.parts[number - self.done];
    const Accumulator& mine = self.accumulators.at(part.d);
    for (int r = 0; product.accumulate && r < n / 2; ++r)
      D[row_of(i, r)][col_of(i, r)] = double{mine.value[static_cast<std::size_t>(r)]};
    if (part.a == nullptr) continue;
    if (!std::equal(part.a_then.begin(), part.a_then.end(), part.a))
      simt::fail(RuleId::in_flight, product.site, "wgmma: A in registers was changed before the product was waited for");
    for (int r = 0; r < 4; ++r) {
      for (int which = 0; which < 2; ++which) {
        const auto bits = static_cast<std::uint16_t>(part.a_then[static_cast<std::size_t>(r)] >> 16 * which);
        A[static_cast<std::size_t>(fragment::a_row(i, r))][static_cast<std::size_t>(fragment::a_col(i, r, which))] =
            product.type == MmaType::f16 ? half_to_float(bits) : bfloat16_to_float(bits);
      }
    }
  }
  if (product.a_shared) std::memcpy(A.data(), &product.A[static_cast<std::size_t>(warp % 4) * 256], sizeof A);
  for (std::size_t row = 0; row < 16; ++row) {
    for (std::size_t k = 0; k < 16; ++k) {
      const double a = double{A[row][k]};
      const float* const B = &product.B[k * static_cast<std::size_t>(n)];
      for (std::size_t col = 0; col < static_cast<std::size_t>(n); ++col) D[row][col] += a * double{B[col]};
    }
  }
  block_.counters.tensor_core_products += static_cast<std::uint64_t>(16 * 16 * n);
  for (int i = 0; i < 32; ++i) {
    Lane& self = lane(warp * 32 + i);
    float* const d = self.parts[number - self.done].d;
    Accumulator& mine = self.accumulators.at(d);
    for (int r = 0; r < n / 2; ++r) mine.value[static_cast<std::size_t>(r)] = static_cast<float>(D[row_of(i, r)][col_of(i, r)]);
    if (--mine.in_flight > 0) continue;
    std::erase_if(self.in_flight, [&](const auto& accumulators) { return accumulators.first == d; });
    --in_flight_;
    if (!std::all_of(d, d + n / 2, is_poison))
      simt::fail(RuleId::in_flight, mine.site, "wgmma: accumulators were written before they were waited for");
    std::ranges::copy(mine.value, d);
    mine.fences_then = self.fences;
  }
}

/// Of A only the warp's rows, unless they are a part of each chunk's row.
std::vector<MemoryRange> Warpgroups::reads_of(const Product& product, std::size_t warp) const {
  AsyncProxy::Units units = product.b_units;
  const auto first = product.a_units.begin();
  if (product.a_major == Major::k && product.a_shared) {
    const auto part = [&](std::size_t w) { return first + static_cast<std::ptrdiff_t>(32 * w); };
    units.insert(units.end(), part(warp), part(warp + 1));
  } else {
    units.insert(units.end(), first, product.a_units.end());
  }
  std::ranges::sort(units);
  std::vector<MemoryRange> ranges;
  for (const std::uint32_t unit : units) {
    const auto begin = reinterpret_cast<std::uintptr_t>(proxy_.address_of(unit));
    if (ranges.empty() || ranges.back().end < begin) ranges.push_back({begin, begin});
    ranges.back().end = begin + AsyncProxy::unit_bytes;
  }
  return ranges;
}

/// For who looks for races: a read by the running thread.
void Warpgroups::note_reads(const Product& product, int warp) const {
  if (instruments.watch == nullptr) return;
  for (const MemoryRange& range : product.reads[static_cast<std::size_t>(warp)])
    watch_view(product.site, reinterpret_cast<const void*>(range.begin), range.end - range.begin, false);
}

}  // namespace flash::machine
