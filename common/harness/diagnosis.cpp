#include "common/harness/diagnosis.hpp"

#include "common/simt/findings.hpp"
#include "common/simt/options.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace flash {
namespace {

/// Sets the simulator's options, and the old ones in the end.
class WithOptions {
 public:
  explicit WithOptions(const simt::Options& options) : usual_(simt::options()) { simt::set_options(options); }
  ~WithOptions() { simt::set_options(usual_); }
  WithOptions(const WithOptions&) = delete;
  WithOptions& operator=(const WithOptions&) = delete;

 private:
  simt::Options usual_;
};

/// "" if the results agree to the last bit in every order of threads that is tried, else the order that gives another result.
std::string order_that_differs(Runner& runner, const Variant& variant, const Results<float>& usual) {
  using simt::Order;
  for (const auto& [order, name] : {std::pair{Order::reverse, "reverse"}, std::pair{Order::random, "random:1"}}) {
    simt::Options options = simt::options();
    options.order = order;
    options.seed = 1;
    const WithOptions in_order(options);
    runner.run();
    Results<float> other = runner.results();
    if (variant.atomic_dQ) other.dQ = usual.dQ;
    if (!identical(usual, other)) return name;
  }
  return "";
}

const TensorCheck* find(const CheckReport& check, const char* name) {
  const auto found = std::ranges::find(check.tensors, name, &TensorCheck::tensor);
  return found == check.tensors.end() ? nullptr : &*found;
}

bool is_wrong(const CheckReport& check, const char* name) {
  const TensorCheck* const tensor = find(check, name);
  return tensor != nullptr && !tensor->passed;
}

/// "every element is -1 times what it should be": "" if no one factor explains the result.
std::string factor_words(const TensorCheck& tensor) {
  if (tensor.passed || !tensor.factor) return "";
  char number[32];
  std::snprintf(number, sizeof number, "%.4g", *tensor.factor);
  return "every element of " + tensor.tensor + " is " + number + " times what it should be" +
         (*tensor.factor == -1 ? ": a sign" : "");
}

}  // namespace

std::string suspect(const CheckReport& check) {
  const bool o = is_wrong(check, "o"), lse = is_wrong(check, "lse");
  const bool dq = is_wrong(check, "dq"), dk = is_wrong(check, "dk"), dv = is_wrong(check, "dv");
  if (lse && o) return "lse and o are wrong: look first at the scores, S = scale Q K^T + bias, at the mask, and at m and l";
  if (lse) return "o is right and lse is wrong: look at L = m + ln l";
  if (o) return "lse is right, so S, m and l are: look at O = P V, and at where O is rescaled or divided by l";
  if (dv && (dq || dk))
    return "o and lse are right; dv is wrong too: look first at P = exp(S - L), at the mask, and at dV = P^T dO";
  if (dv) return "dv alone is wrong: look at dV = P^T dO";
  if (dq && dk) return "dv is right, so P is: look at dP = dO V^T, at D, and at dS = P o (dP - D)";
  if (dq) return "dq alone is wrong, so dS is right: look at dQ = scale dS K";
  if (dk) return "dk alone is wrong, so dS is right: look at dK = scale dS^T Q";
  return "";
}

std::optional<Diagnosis> diagnose(Runner& runner, const Results<float>& got, const RunRecord& run) {
  if (run.device.kind != Backend::cpu || !simt::can_watch()) return std::nullopt;
  simt::reset_findings();
  {
    simt::Options options = simt::options();
    options.watch = true;
    const WithOptions watching(options);
    runner.run();
  }
  const simt::Findings findings = simt::findings();
  Diagnosis diagnosis;
  diagnosis.complete = findings.complete;
  for (const simt::Race& race : findings.races) diagnosis.mistakes.push_back(sentence(race));
  if (!run.check || run.check->passed || run.largest_score) return diagnosis;

  const std::string order = order_that_differs(runner, run.variant, got);
  if (!order.empty()) {
    diagnosis.hints.push_back("the result depends on the order of the threads: FLASH_SIMT_ORDER=" + order + " gives another");
  }
  for (const simt::UnwrittenRead& read : findings.unwritten)
    diagnosis.hints.push_back(sentence(read) + ": NaN, until somebody writes it");
  if (diagnosis.hints.empty() && findings.races.empty() && findings.complete) {
    diagnosis.hints.push_back(
        "no race, no read of unwritten shared memory, and threads in another order give the same: the "
        "arithmetic is wrong");
    diagnosis.hints.push_back(suspect(*run.check));
    for (const TensorCheck& tensor : run.check->tensors) {
      if (const std::string words = factor_words(tensor); !words.empty()) diagnosis.hints.push_back(words);
    }
  }
  return diagnosis;
}

}  // namespace flash
