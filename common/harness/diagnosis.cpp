#include "common/harness/diagnosis.hpp"

#include "common/attention/tensor_table.hpp"
#include "common/harness/text.hpp"
#include "common/machine/cpu/findings.hpp"
#include "common/machine/cpu/options.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

namespace flash {
namespace {

bool is_wrong(const CheckReport& check, std::string_view name) {
  return std::ranges::any_of(check.tensors, [&](const TensorCheck& t) { return t.tensor == name && !t.passed; });
}

/// "the elements of o are about -1 times what they should be": "" if no one factor explains the result.
std::string factor_words(const TensorCheck& tensor) {
  if (tensor.passed || !tensor.factor) return "";
  const std::string number = number_text(*tensor.factor, 4);
  if (number == "1") return "";
  return "the elements of " + tensor.tensor + " are about " + number + " times what they should be" +
         (*tensor.factor == -1 ? ": a sign" : "");
}

const char* address_of(const TensorRef& t, std::int64_t b, std::int64_t h, std::int64_t row, std::int64_t col) {
  const std::int64_t at = b * t.stride[0] + h * t.stride[1] + row * t.stride[2] + col * t.stride[3];
  return static_cast<const char*>(t.data) + at * size_of(t.dtype);
}

/// "" or which rows of a tensor, of the first head that has some, hold elements that no launch has written.
std::string unwritten_of(const TensorRef& t) {
  const std::int64_t H = t.shape[1], N = t.shape[2];
  std::vector<std::int64_t> rows;  // counted over all heads
  std::string writer;              // of other elements
  for (std::int64_t row = 0; row < t.shape[0] * H * N; ++row) {
    bool all = true;
    for (std::int64_t col = 0; col < t.shape[3]; ++col) {
      const char* const address = address_of(t, row / N / H, row / N % H, row % N, col);
      const bool written = simt::was_written(address, static_cast<std::size_t>(size_of(t.dtype)));
      if (written && writer.empty()) writer = simt::writer_near(address);
      all = all && written;
    }
    if (!all && (rows.empty() || rows.front() / N == row / N)) rows.push_back(row);
  }
  if (rows.empty()) return "";
  if (writer.empty()) return std::string("no thread has written any element of ") + t.name + ": is its kernel launched?";
  const std::int64_t head = rows.front() / N, first = rows.front() % N, last = rows.back() % N;
  const bool all_between = last - first + 1 == static_cast<std::int64_t>(rows.size());
  return std::string("no thread has written all of ") + t.name + " in " + (first == last ? "row " : "rows ") +
         std::to_string(first) + (first == last ? "" : (all_between ? " to " : ", and others up to ") + std::to_string(last)) +
         " (batch " + std::to_string(head / H) + ", head " + std::to_string(head % H) + "): does the grid of " + writer +
         " cover them, or does a guard skip them?";
}

/// L before O: in chapters 01 to 03 a kernel of its own makes O of P.
const TensorCheck* first_wrong_of(const CheckReport& check) {
  const TensorCheck* first = nullptr;
  for (const TensorCheck& tensor : check.tensors) {
    if (!tensor.passed && (first == nullptr || tensor.tensor == "lse")) first = &tensor;
  }
  return first;
}

/// The formula to look at, by the tensors that are wrong and those that are right.
std::string suspected_formula(const CheckReport& check) {
  const bool o = is_wrong(check, "o"), lse = is_wrong(check, "lse");
  const bool dq = is_wrong(check, "dq"), dk = is_wrong(check, "dk"), dv = is_wrong(check, "dv");
  if (lse && o) return "lse and o are wrong: look first at the scores, S = scale Q K^T + bias, at the mask, and at m and l";
  if (lse) return "o is right and lse is wrong: look at L = m + ln l";
  if (o) return "lse is right: look at O = P V, at where O is rescaled or divided by l, and at m and l of other lanes";
  if (dv && dk && !dq)
    return "dk and dv are wrong, dq is right: if one kernel makes all three, so are P and dS, and it is the sums over queries, "
           "dV = P^T dO and dK = scale dS^T Q";
  if (dv && (dq || dk))
    return "o and lse are right; dv is wrong too: look first at P = exp(S - L), at the mask, and at dV = P^T dO";
  if (dv) return "dv alone is wrong: look at dV = P^T dO";
  if (dq && dk) return "dv is right, so P is: look at dP = dO V^T, at D, and at dS = P o (dP - D)";
  if (dq) return "dq alone is wrong: look at dQ = scale dS K, and at dS if a kernel of its own makes dq";
  if (dk) return "dk alone is wrong: look at dK = scale dS^T Q, and at dS if another kernel makes dq";
  if (is_wrong(check, "dbias"))
    return "dbias alone is wrong: look at P o (dP - D), without the slope of a softcap, and at its sum over batches and heads";
  return "";
}

/// Runs the pass without what its kernels print, which the first run has shown.
void run_again(Runner& runner, const simt::Options& options) {
  const simt::Simulated simulated(options);
  const simt::PrintsTo nowhere(nullptr);
  runner.run();
}

/// Every access, and who writes to the worst element of `wrong`, which may be null.
simt::Findings watched_run(Runner& runner, const TensorCheck* wrong) {
  const void* followed = nullptr;
  if (wrong != nullptr) {
    const auto tensor = std::ranges::find(problem_tensors(), wrong->tensor, &ProblemTensor::file);
    const Worst& at = wrong->worst;
    followed = address_of(runner.attention().*tensor->on_device, at.b, at.h, at.row, at.col);
  }
  simt::reset_findings();
  simt::follow_writes(followed);
  simt::Options options = simt::options();
  options.watch = true;
  run_again(runner, options);
  simt::follow_writes(nullptr);
  return simt::findings();
}

/// "" if the variant gives the same as `usual`, to the last bit, in other orders of the threads.
std::string order_that_differs(Runner& runner, const Variant& variant, const Results<float>& usual,
                               const simt::Findings& found) {
  const bool explained = !found.races.empty() || !found.unwritten.empty();
  for (const auto& [order, name] : {std::pair{simt::Order::reverse, "reverse"}, {simt::Order::random, "random:1"}}) {
    simt::Options options = simt::options();
    options.order = order;
    options.seed = 1;
    run_again(runner, options);
    Results<float> again = runner.results();
    if (variant.atomic_dQ) again.dQ = usual.dQ;
    if (!identical(usual, again))
      return std::string("the result depends on the order of the threads: FLASH_SIMT_ORDER=") + name + " gives another" +
             (explained ? ""
                        : ". No race explains that; atomics whose order counts would, or a local variable that is read "
                          "before it is set");
  }
  return "";
}

void add_rule(Diagnosis& diagnosis, RuleId rule) {
  if (std::ranges::find(diagnosis.rules, name_of(rule)) == diagnosis.rules.end()) diagnosis.rules.push_back(name_of(rule));
}

void add_mistake(Diagnosis& diagnosis, RuleId rule, const std::string& text, const std::vector<std::string>& lines) {
  diagnosis.mistakes.push_back({name_of(rule), text, lines});
  add_rule(diagnosis, rule);
}

/// Nothing if the text is empty.
void add_hint(Diagnosis& diagnosis, RuleId rule, const std::string& text) {
  if (text.empty()) return;
  diagnosis.hints.push_back(text);
  add_rule(diagnosis, rule);
}

/// "" if there are no bank conflicts of plain arrays.
std::string array_conflicts(const simt::Findings& found) {
  std::uint64_t sum = 0;
  simt::ArrayConflicts most;
  for (const simt::ArrayConflicts& at : found.conflicts) {
    sum += at.count;
    if (at.count > most.count) most = at;
  }
  if (sum == 0) return "";
  return std::to_string(sum) + " bank conflicts of plain arrays in shared memory, " + std::to_string(most.count) +
         " of them at " + most.line + " (kernel " + most.kernel + ")";
}

/// Where to look if the threads are not to blame.
std::vector<std::string> arithmetic_hints(const RunRecord& run, const Inputs& inputs, const Sample& sample,
                                          const Results<float>& got, const std::string& last_write) {
  const CheckReport& check = *run.check;
  std::vector<std::string> hints{
      "no race, no read of unwritten shared or global memory (but for atomics, which nobody watches), and threads in "
      "another order give the same: the arithmetic is wrong, or a local variable has no value"};
  const bool forward = is_wrong(check, "lse") || is_wrong(check, "o");
  const std::string solved = forward ? solved_instead(run.problem, inputs, got, check, sample) : "";
  hints.push_back(solved.empty() ? suspected_formula(check) : solved);
  for (const TensorCheck& tensor : check.tensors)
    if (const std::string words = factor_words(tensor); solved.empty() && !words.empty()) hints.push_back(words);
  const TensorCheck& wrong = *first_wrong_of(check);
  if (std::isnan(wrong.worst.got))
    hints.push_back(
        "NaN: 0 / 0, inf - inf, or a local variable that no one has written, which holds NaN here and anything on a GPU");
  if (!last_write.empty()) hints.push_back("the worst element of " + wrong.tensor + " was written at " + last_write);
  return hints;
}

}  // namespace

std::vector<std::string> never_written(const Attention& a) {
  std::vector<TensorRef> looked_at;
  for (const ProblemTensor& each : problem_tensors()) {
    if (each.result != nullptr) looked_at.push_back(a.*each.on_device);
  }
  for (const TensorRef& workspace : a.workspaces) {
    const auto begin = reinterpret_cast<std::uintptr_t>(workspace.data);
    const auto bytes = static_cast<std::uintptr_t>(workspace.elements() * size_of(workspace.dtype));
    const auto inside = [&](const simt::UnwrittenRead& read) { return !read.shared && read.address - begin < bytes; };
    if (std::ranges::any_of(simt::findings().unwritten, inside)) looked_at.insert(looked_at.begin(), workspace);
  }
  std::vector<std::string> sentences;
  for (const TensorRef& tensor : looked_at)
    if (std::string text = unwritten_of(tensor); !text.empty()) sentences.push_back(std::move(text));
  return sentences;
}

void diagnose(Runner& runner, const Inputs& inputs, const Sample& sample, const Results<float>& got, RunRecord& run) {
  if (run.device.kind != Backend::cpu || !simt::can_watch()) return;
  const simt::Findings found = watched_run(runner, first_wrong_of(*run.check));
  Diagnosis& diagnosis = run.diagnosis;
  diagnosis.watched = true;
  diagnosis.complete = found.complete;
  for (const simt::Race& race : found.races)
    add_mistake(diagnosis, race.rule(), sentence(race), {race.first_line, race.second_line});
  for (const simt::UnwrittenRead& read : found.unwritten)
    if (read.early) add_mistake(diagnosis, RuleId::unwritten_read, sentence(read), {read.line});
  if (run.check->passed) diagnosis.remark = array_conflicts(found);
  if (run.check->passed || !diagnosis.hints.empty()) return;

  for (const std::string& text : found.complete ? never_written(runner.attention()) : std::vector<std::string>{})
    add_hint(diagnosis, RuleId::never_written, text);
  add_hint(diagnosis, RuleId::thread_order, order_that_differs(runner, run.variant, got, found));
  for (const simt::UnwrittenRead& read : found.unwritten)
    add_hint(diagnosis, RuleId::unwritten_read, sentence(read) + ": NaN, until somebody writes it");
  if (diagnosis.hints.empty() && found.races.empty() && found.complete)
    diagnosis.hints = arithmetic_hints(run, inputs, sample, got, found.last_write);
  if (const std::string words = only_empty_rows_wrong(run.problem, *run.check); !words.empty())
    diagnosis.hints = {words};  // the formulas are right
}

}  // namespace flash
