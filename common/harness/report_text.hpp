// Pieces of the text reports. Internal to the harness.
#pragma once

#include "common/harness/report.hpp"

namespace flash::report {

/// "  label        text\n"; a long text goes on below itself.
std::string line(const char* label, const std::string& text);

/// "NVIDIA H200, sm_90, CUDA 13.0, driver 1.2".
std::string device_text(const DeviceInfo&);

/// Pass, problem, input and device, a line each.
std::string heading_text(const RunRecord&);

/// Where a tensor is wrong most. Elements that are not finite are described in words: they are no result.
std::string worst_text(const TensorCheck&);

}  // namespace flash::report
