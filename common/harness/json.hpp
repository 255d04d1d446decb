// A device and a problem in JSON, the same in a stage's report and in the rows of the comparison.
#pragma once

#include "common/attention/problem.hpp"
#include "common/machine/device.hpp"

#include <nlohmann/json.hpp>

namespace flash {

inline nlohmann::ordered_json device_json(const DeviceInfo& device) {
  nlohmann::ordered_json json{{"kind", device.kind == Backend::gpu ? "gpu" : "cpu"},
                              {"name", device.name},
                              {"sm", device.sm},
                              {"cuda", device.cuda},
                              {"driver", device.driver}};
  if (device.kind == Backend::cpu) {
    json["simulates_sm"] = device.simulates_sm;
    json["order"] = device.order;
  }
  // The two roofs, and the slope, of a roofline, as far as they are known.
  const auto peak = [&](const char* key, double value) {
    if (value > 0) json[key] = value;
  };
  peak("peak_fp32_tflops", device.peak_fp32_tflops);
  peak("peak_tensor16_tflops", device.peak_tensor16_tflops);
  peak("peak_bytes_per_second", device.peak_bytes_per_second);
  return json;
}

/// Sizes and options in the order of the reports, a window, a softcap, lengths, dropout, the bias's gradient and another score only if there are any; which inputs it is solved for is to follow.
inline nlohmann::ordered_json problem_json(const FullProblem& p) {
  nlohmann::ordered_json json{{"batch", p.B},
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
  if (!p.window.is_open()) json["window"] = to_string(p.window);
  if (p.softcap != 0.0f) json["softcap"] = p.softcap;
  if (!p.sequences.empty()) json["lengths"] = to_string(p.sequences);
  if (p.dropout.probability != 0.0f) {
    json["dropout"] = p.dropout.probability;
    json["dropout_seed"] = p.dropout.seed;
  }
  if (p.bias_gradient) json["bias_gradient"] = true;
  if (p.score != Score::dot) json["score"] = to_string(p.score);
  if (p.values != Values::tangent) json["values"] = to_string(p.values);
  return json;
}

}  // namespace flash
