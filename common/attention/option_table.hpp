// The problem's options, each described once: the command line, its help, JSON, descriptions, commands and what a variant refuses are made from
// this table. An option's key in JSON is its name without the dashes in front and with _ for -.
#pragma once

#include "common/attention/problem.hpp"

#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <variant>

namespace flash {

template <class T>
concept Enumeration = requires(T value) {
  spellings(value);
};
template <Enumeration Enum>
inline constexpr std::array value_names = spellings(Enum{});

template <Enumeration Enum>
constexpr const char* to_string(Enum value) {
  return value_names<Enum>[static_cast<std::size_t>(value)];
}

/// When JSON, descriptions and commands name an option: if_set where it is not at its default; always_in_json likewise, but always in JSON;
/// of_inputs always, but never in descriptions.
enum class Named { if_set, always_in_json, always, of_inputs };

struct ProblemOption {
  const char* name;  ///< "--kv-heads"
  std::variant<int FullProblem::*, float FullProblem::*, bool FullProblem::*, std::uint64_t FullProblem::*,
               Window FullProblem::*, Sequences FullProblem::*, Dtype FullProblem::*, Layout FullProblem::*,
               BiasKind FullProblem::*, Score FullProblem::*, Values FullProblem::*, InputKind FullProblem::*, float Dropout::*,
               std::uint64_t Dropout::*>
      member;
  const char* value;  ///< as --help shows it; "" for flags, and for enumerations, whose values it shows
  const char* help;
  struct Traits {
    Named named = Named::if_set;
    std::array<Features, 5> features{};  ///< by the value of a flag or an enumeration; of other options [1], if `has_feature`
    const char* default_text = nullptr;  ///< the default in words; null: the value in FullProblem
    const char* feature_name = nullptr;  ///< of that feature, if it is not the option's
    const char* allowed = nullptr;       ///< null: all values of the type
    bool (*valid)(const FullProblem&) = nullptr;
    bool (*has_feature)(const FullProblem&) = nullptr;  ///< null: a value that is not the default does
  } traits;
  std::span<const char* const> values;  ///< of an enumeration
};

std::span<const ProblemOption> problem_options();

/// The text of each, text_of(item), with a comma between them.
template <class Items, class Text>
std::string joined(const Items& items, Text text_of, const char* between = ", ") {
  std::string all;
  for (const auto& item : items) all += (all.empty() ? "" : between) + std::string(text_of(item));
  return all;
}

template <class Problem, class Owner, class T>
auto& value_of(Problem& problem, T Owner::*member) {
  if constexpr (std::is_same_v<Owner, Dropout>)
    return problem.dropout.*member;
  else
    return problem.*member;
}

/// Calls visit() with the option's value in the problem.
template <class Problem, class Visit>
auto with_value(const ProblemOption& option, Problem& problem, Visit&& visit) {
  return std::visit([&](auto member) { return visit(value_of(problem, member)); }, option.member);
}

/// Has the option a value of this type?
template <class T>
bool holds(const ProblemOption& option) {
  return std::holds_alternative<T FullProblem::*>(option.member);
}

/// The options on a command line by name, with their values as text. Flags are "true" or "false".
using GivenOptions = std::map<std::string, std::string>;

/// The six sizes of a problem as if they were given.
GivenOptions given_sizes(const std::array<std::int64_t, 6>& B_H_Hkv_Nq_Nk_d);

/// Gives the option this value; UsageError if it is given another. `why`: where the value comes from.
void give_option(GivenOptions&, const std::string& name, const std::string& value, const std::string& why);

/// The problem, which kernels may trust; sizes not given have defaults, --kv-heads those of --heads, and the lengths of a ragged batch are those
/// of its sequences. UsageError: one line that says what was given and what is allowed.
FullProblem make_problem(GivenOptions);

/// UsageError if a value is none, if options contradict each other, or if the sizes are too large or do not go with each other.
void check_problem(const FullProblem&);

/// The value of an option as the command line takes it.
std::string value_text(const ProblemOption&, const FullProblem&);

/// "bhnd|bnhd|qkv|kv", for --help.
std::string values_text(const ProblemOption&);

/// Is it not at its default? without_option(): the problem with the option at its default.
bool is_set(const ProblemOption&, const FullProblem&);
FullProblem without_option(const ProblemOption&, FullProblem);

/// One line for reports and messages: "B=1 H=2 Hkv=2 Nq=128 Nk=128 d=64 causal fp32 bhnd bias=none".
std::string describe(const FullProblem&);

/// As on the command line: "--causal, --bias alibi".
std::string names_of(Features);

/// The problem as command-line arguments, "--batch=1".
std::vector<std::string> to_arguments(const FullProblem&);

}  // namespace flash
