#include "common/compare/row.hpp"

#include "common/compare/plan.hpp"
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

const Json* Row::at(std::string path) const {
  std::replace(path.begin(), path.end(), '.', '/');
  const Json::json_pointer pointer("/" + path);
  return report.contains(pointer) ? &report.at(pointer) : nullptr;
}

std::optional<double> Row::number(const std::string& path) const {
  const Json* value = at(path);
  return value != nullptr && value->is_number() ? std::optional(value->get<double>()) : std::nullopt;
}

std::string Row::text(const std::string& path) const {
  const Json* value = at(path);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

std::optional<std::string> Row::tiles() const {
  const std::optional<double> Br = number("tiles.br"), Bc = number("tiles.bc");
  if (!Br || !Bc) return std::nullopt;
  return to_string(Tiles{static_cast<int>(*Br), static_cast<int>(*Bc)});
}

std::optional<double> Row::max_error() const {
  std::optional<double> largest;
  for (const std::string tensor : pass == Pass::forward ? std::vector{"o"} : std::vector{"dq", "dk", "dv"}) {
    const std::string of = "check.tensors." + tensor;
    if (!number(of + ".tolerance")) continue;  // it was not checked
    largest = std::max(largest.value_or(0), number(of + ".max_abs").value_or(std::numeric_limits<double>::infinity()));
  }
  return largest;
}

Row empty_row(const Run& run, Verdict verdict, const std::string& message) {
  return {.stage = run.stage->name,
          .variant = run.variant->name,
          .pass = run.pass,
          .problem = run.problem(),
          .verdict = verdict,
          .message = message};
}

Row make_row(const Run& run, const ProcessResult& result) {
  Json report = Json::parse(result.output, nullptr, /*allow_exceptions=*/false);
  const bool has_report = report.is_object();
  const Verdict verdict = verdict_of(result, has_report);
  Row row = empty_row(run, verdict, verdict == Verdict::ok ? "" : message_of(result));
  if (has_report) row.report = std::move(report);
  return row;
}

}  // namespace flash
