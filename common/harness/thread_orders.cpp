#include "common/harness/thread_orders.hpp"

#include "common/machine/cpu/options.hpp"
#include "common/machine/cpu/print.hpp"

#include <utility>

namespace flash {
namespace {

using simt::Order;

class Orders {
 public:
  Orders(Runner& runner, const Variant& variant) : runner_(runner), atomic_dQ_(variant.atomic_dQ) {}

  Results<float> results(Order order) {
    simt::Options options = simt::options();
    options.order = order;
    options.seed = 1;
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

}  // namespace

std::string order_that_differs(Runner& runner, const Variant& variant, const Results<float>& usual) {
  Orders orders(runner, variant);
  for (const auto& [order, name] : {std::pair{Order::reverse, "reverse"}, std::pair{Order::random, "random:1"}}) {
    if (!orders.differ(usual, orders.results(order))) continue;
    return std::string("the result depends on the order of the threads: FLASH_SIMT_ORDER=") + name + " gives another";
  }
  return "";
}

}  // namespace flash
