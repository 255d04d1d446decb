#include "common/harness/thread_orders.hpp"

#include "common/simt/options.hpp"
#include "common/simt/print.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace flash {
namespace {

using simt::Order;
using simt::Schedule;
using simt::Switch;
using simt::Turn;

class Orders {
 public:
  Orders(Runner& runner, const Variant& variant) : runner_(runner), atomic_dQ_(variant.atomic_dQ) {}

  Results<float> results(Order order, Schedule* schedule = nullptr) {
    simt::Options options = simt::options();
    options.order = order;
    options.seed = 1;
    options.schedule = schedule;
    const simt::Simulated simulated(options);
    const simt::PrintsTo nowhere(nullptr);
    runner_.run();
    return runner_.results();
  }

  bool differ(const Results<float>& a, Results<float> b) const {
    if (atomic_dQ_) b.dQ = a.dQ;
    return !identical(a, b);
  }

 private:
  Runner& runner_;
  bool atomic_dQ_;
};

/// Fewest turns by delta debugging (Zeller and Hildebrandt, 2002): parts of the turns are tried alone, then all but a part, then smaller parts.
class Shrinking {
 public:
  Shrinking(Orders& orders, const Results<float>& forward) : orders_(orders), forward_(forward) {}

  /// Keeps the switches that the turns lead to, if the result differs from that of forward order.
  bool keep(std::vector<Turn> turns) {
    Schedule schedule(std::move(turns));
    if (!orders_.differ(forward_, orders_.results(Order::forward, &schedule))) return false;
    switches_ = schedule.switches();
    return !switches_.empty();
  }

  /// False: given up before no switch could be left out.
  bool finish() {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point end = Clock::now() + std::chrono::seconds(3);
    for (std::size_t parts = 2; switches_.size() > 1;) {
      const std::size_t count = switches_.size();
      parts = std::min(parts, count);
      bool smaller = false;
      for (const bool alone : {true, false}) {
        for (std::size_t part = parts; part-- > 0 && !smaller;) {  // late turns first: they act on the results themselves
          if (Clock::now() > end) return false;
          smaller = keep(turns(count * part / parts, count * (part + 1) / parts, alone));
          if (smaller) parts = alone ? 2 : std::max<std::size_t>(parts - 1, 2);
        }
      }
      if (!smaller && parts == count) return true;
      if (!smaller) parts *= 2;
    }
    return true;
  }

  const std::vector<Switch>& switches() const { return switches_; }

 private:
  std::vector<Turn> turns(std::size_t begin, std::size_t end, bool inside) const {
    std::vector<Turn> chosen;
    for (std::size_t i = 0; i < switches_.size(); ++i) {
      if ((i >= begin && i < end) == inside) chosen.push_back(switches_[i].turn);
    }
    return chosen;
  }

  Orders& orders_;
  const Results<float>& forward_;
  std::vector<Switch> switches_;
};

std::string fewest_switches(Orders& orders, Order order) {
  constexpr std::size_t most_turns = 1 << 20, most_told = 2;
  Schedule recorded;
  const Results<float> forward = orders.results(Order::forward);
  if (!orders.differ(forward, orders.results(order, &recorded)) || recorded.turns().size() > most_turns) return "";
  Shrinking shrinking(orders, forward);
  if (!shrinking.keep(recorded.turns())) return "";
  const bool finished = shrinking.finish();
  const std::vector<Switch>& switches = shrinking.switches();
  const std::size_t count = switches.size();
  std::string text = count == 1 ? "; one switch is enough: " : "; " + std::to_string(count) + " switches are enough: ";
  for (std::size_t i = 0; i < std::min(count, most_told); ++i) text += (i == 0 ? "" : "; ") + sentence(switches[i]);
  if (count > most_told) text += "; ...";
  return text + (finished ? "" : " (fewer may be: the search took too long)");
}

}  // namespace

std::string order_that_differs(Runner& runner, const Variant& variant, const Results<float>& usual) {
  Orders orders(runner, variant);
  for (const auto& [order, name] : {std::pair{Order::reverse, "reverse"}, std::pair{Order::random, "random:1"}}) {
    if (!orders.differ(usual, orders.results(order))) continue;
    return std::string("the result depends on the order of the threads: FLASH_SIMT_ORDER=") + name + " gives another" +
           fewest_switches(orders, order);
  }
  return "";
}

}  // namespace flash
