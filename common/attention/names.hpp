// What a problem has by the names that the command line, JSON and reports use.
#pragma once

#include "common/attention/problem.hpp"

namespace flash {

enum class Features : unsigned;  // features.hpp

/// The values of an enumeration on the command line and in JSON, in its order.
template <class Enum>
inline constexpr std::array<const char*, 0> value_names{};
template <>
inline constexpr std::array value_names<Pass>{"forward", "backward"};
template <>
inline constexpr std::array value_names<Dtype>{"fp32", "fp16", "bf16"};
template <>
inline constexpr std::array value_names<Layout>{"bhnd", "bnhd", "qkv", "kv"};
template <>
inline constexpr std::array value_names<BiasKind>{"none", "vector", "matrix", "alibi"};
template <>
inline constexpr std::array value_names<Score>{"dot", "lorentz"};
template <>
inline constexpr std::array value_names<Values>{"tangent", "centroid"};
template <>
inline constexpr std::array value_names<InputKind>{"normal", "ones", "identity", "ramp", "large"};

template <class T>
concept Enumeration = value_names<T>
.size() > 0;

template <Enumeration Enum>
constexpr const char* to_string(Enum value) {
  return value_names<Enum>[static_cast<std::size_t>(value)];
}

/// One line for reports and messages: "B=1 H=2 Hkv=2 Nq=128 Nk=128 d=64 causal fp32 bhnd bias=none". A bias comes with what it is shared by.
std::string describe(const FullProblem&);

/// As on the command line: "--causal, --bias alibi".
std::string names_of(Features);

}  // namespace flash
