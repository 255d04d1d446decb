// The variants of the running stage, and which of them a problem gets if nobody names one.
#pragma once

#include "common/attention/variants.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace flash {

/// The variants of the running stage for one backend, in the order of their file numbers; empty for gpu in a CPU-only build.
/// Filled by the source that add_stage() generates for the stage.
const std::vector<Variant>& variants(Backend);

/// The one of that name; null if there is none.
const Variant* find_variant(Backend, std::string_view name);

/// The one that is the fastest for the pass of the problem and can run it on such a device; null if none says so. If several do: the
/// first that is only for some problems, else the last, since a later step knows the earlier ones.
const Variant* fastest_variant(Backend, const FullProblem&, Pass, const DeviceLimits&);

/// "" or which two kernel files have given their variants the same name, so that nobody could choose the second.
std::string name_clash(Backend);

/// Adds a variant when the program starts. It is read in main() at the earliest, since it may be initialised after this.
struct RegisterVariant {
  RegisterVariant(Backend, int number, const Variant&, const char* file = "", Predict = nullptr, CopyRows = nullptr);
  RegisterVariant(Backend, int, Variant&&, const char* = "", Predict = nullptr, CopyRows = nullptr) = delete;
};

}  // namespace flash
