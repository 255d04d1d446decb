// A problem in JSON, the same in a stage's report and in the rows of the comparison.
#pragma once

#include "common/attention/problem.hpp"

#include <nlohmann/json.hpp>

namespace flash {

/// Sizes and options in the order of the reports; which inputs it is solved for is to follow.
inline nlohmann::ordered_json problem_json(const Problem& p) {
  return {{"batch", p.B},
          {"heads", p.H},
          {"kv_heads", p.Hkv},
          {"seq_q", p.Nq},
          {"seq_k", p.Nk},
          {"head_dim", p.d},
          {"scale", p.scale},
          {"causal", p.causal},
          {"bias", to_string(p.bias)},
          {"dtype", to_string(p.dtype)},
          {"layout", to_string(p.layout)}};
}

}  // namespace flash
