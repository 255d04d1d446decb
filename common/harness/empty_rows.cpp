#include "common/harness/empty_rows.hpp"

#include "common/reference/reference.hpp"

#include <numeric>

namespace flash {

std::string only_empty_rows_wrong(const Problem& p, const Inputs& inputs, Pass pass, const Results<float>& got) {
  const int empty = p.causal ? p.Nq - p.Nk : 0;
  if (empty <= 0 || !choose_sample(p, pass, /*seed=*/1).whole) return "";
  Sample others{.whole = false, .slices = {}};
  std::vector<int> queries(static_cast<std::size_t>(p.Nk)), keys(pass == Pass::backward ? queries.size() : 0);
  std::iota(queries.begin(), queries.end(), empty);
  std::iota(keys.begin(), keys.end(), 0);
  for (int b = 0; b < p.B; ++b) {
    for (int h = 0; h < p.H; ++h) others.slices.push_back({b, h, queries, keys});
  }
  if (!check_results(p, inputs, pass, got, others).passed) return "";
  return "only rows that see no key are wrong, 0 to " + std::to_string(empty - 1) +
         " of each head: they must give O = 0 and L = -inf" + (pass == Pass::backward ? ", and dQ = 0" : "");
}

}  // namespace flash
