#include "common/compare/row.hpp"

#include "common/harness/tiles.hpp"

#include <algorithm>
#include <cstring>
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

}  // namespace

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok:
      return "ok";
    case Verdict::wrong:
      return "WRONG";
    case Verdict::stopped:
      return "STOPPED";
    case Verdict::crashed:
      return "CRASHED";
    case Verdict::timed_out:
      return "TIMED OUT";
    case Verdict::refused:
      return "refused";
    case Verdict::no_room:
      return "cannot run";
  }
  return "?";
}

bool is_failure(Verdict verdict) {
  return verdict != Verdict::ok && verdict != Verdict::refused && verdict != Verdict::no_room;
}

std::optional<double> Row::number(std::initializer_list<const char*> path) const {
  const Json* at = &report;
  for (const char* key : path) {
    if (!at->is_object() || !at->contains(key)) return std::nullopt;
    at = &(*at)[key];
  }
  if (!at->is_number()) return std::nullopt;
  return at->get<double>();
}

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

Json Row::json() const {
  Json json = report;
  json["stage"] = stage;
  json["variant"] = variant;
  json["pass"] = flash::to_string(pass);
  json["idea"] = idea;
  json["verdict"] = flash::to_string(verdict);
  if (!message.empty()) json["message"] = message;
  json.update(provenance);
  return json;
}

Row make_row(const Stage& stage, const ListedVariant& variant, Pass pass, const ProcessResult& result) {
  Row row{.stage = stage.name,
          .variant = variant.name,
          .idea = variant.idea,
          .kernel = variant.kernel,
          .pass = pass,
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
