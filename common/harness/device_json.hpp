// A device in JSON, the same in a stage's report and in the rows of the comparison.
#pragma once

#include "common/attention/device.hpp"

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

}  // namespace flash
