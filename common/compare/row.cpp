#include "common/compare/row.hpp"

#include "common/harness/tiles.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

namespace flash {
namespace {

Verdict verdict_of(const ProcessResult& result, bool has_report) {
  if (!result.started) return Verdict::crashed;
  if (result.timed_out) return Verdict::timed_out;
  if (result.signal != 0) return Verdict::crashed;
  switch (result.exit_code) {
    case 0:
      return has_report ? Verdict::ok : Verdict::crashed;
    case 1:
      return has_report ? Verdict::wrong : Verdict::stopped;
    case 2:
      return Verdict::refused;
    case 3:
      return Verdict::no_room;
    default:
      return Verdict::crashed;
  }
}

std::string message_of(const ProcessResult& result) {
  if (!result.started) return "cannot be started: " + result.error;
  std::string text = result.error.substr(0, result.error.find_last_not_of('\n') + 1);
  if (result.signal != 0 && !result.timed_out) {
    text = std::string("ended by signal ") + std::to_string(result.signal) + " (" + strsignal(result.signal) + ")" +
           (text.empty() ? "" : ": " + text);
  }
  return text;
}

/// "" if there is no such text.
std::string text_at(const Json& json, const char* outer, const char* inner) {
  if (!json.contains(outer) || !json[outer].is_object()) return "";
  const Json& object = json[outer];
  return object.contains(inner) && object[inner].is_string() ? object[inner].get<std::string>() : "";
}

}  // namespace

const char* to_string(Verdict verdict) {
  constexpr const char* names[]{"ok", "WRONG", "STOPPED", "CRASHED", "TIMED OUT", "refused", "cannot run", "skipped"};
  static_assert(std::size(names) == static_cast<std::size_t>(Verdict::skipped) + 1, "a name for each, in their order");
  return names[static_cast<std::size_t>(verdict)];
}

bool any_failure(const std::vector<Row>& rows) {
  const auto finished = [&](const Row& slow) {
    return std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
      return row.verdict == Verdict::ok && row.label() == slow.label() && row.pass == slow.pass;
    });
  };
  return std::any_of(rows.begin(), rows.end(), [&](const Row& row) {
    return row.verdict == Verdict::wrong || row.verdict == Verdict::stopped || row.verdict == Verdict::crashed ||
           (row.verdict == Verdict::timed_out && !finished(row));
  });
}

Backend Row::backend() const { return text_at(report, "device", "kind") == "gpu" ? Backend::gpu : Backend::cpu; }
std::string Row::device_name() const { return text_at(report, "device", "name"); }

std::optional<double> Row::number(std::initializer_list<const char*> path) const {
  const Json* at = &report;
  for (const char* key : path) {
    if (!at->is_object() || !at->contains(key)) return std::nullopt;
    at = &(*at)[key];
  }
  if (!at->is_number()) return std::nullopt;
  return at->get<double>();
}

int Row::simulated_sm() const { return static_cast<int>(number({"device", "simulates_sm"}).value_or(90)); }

std::optional<std::string> Row::tiles() const {
  const std::optional<double> Br = number({"tiles", "br"}), Bc = number({"tiles", "bc"});
  if (!Br || !Bc) return std::nullopt;
  return to_string(Tiles{static_cast<int>(*Br), static_cast<int>(*Bc)});
}

std::optional<double> Row::max_error() const {
  std::optional<double> largest;
  const std::vector<const char*> tensors =
      pass == Pass::forward ? std::vector<const char*>{"o"} : std::vector<const char*>{"dq", "dk", "dv"};
  for (const char* tensor : tensors) {
    const bool checked = number({"check", "tensors", tensor, "tolerance"}).has_value();
    if (!checked) continue;
    const double error = number({"check", "tensors", tensor, "max_abs"}).value_or(std::numeric_limits<double>::infinity());
    largest = std::max(largest.value_or(0), error);
  }
  return largest;
}

Row make_row(const Stage& stage, const ListedVariant& variant, Pass pass, const ProcessResult& result) {
  Row row{.stage = stage.name,
          .variant = variant.name,
          .idea = variant.idea,
          .kernel = variant.kernel,
          .pass = pass,
          .problem = {},
          .verdict = Verdict::ok,
          .message = "",
          .report = Json::parse(result.output, nullptr, /*allow_exceptions=*/false),
          .provenance = Json::object()};
  const bool has_report = row.report.is_object();
  if (!has_report) row.report = Json::object();
  row.verdict = verdict_of(result, has_report);
  if (row.verdict != Verdict::ok) row.message = message_of(result);
  return row;
}

}  // namespace flash
