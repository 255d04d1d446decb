#include "common/machine/cpu/options.hpp"

#include "common/machine/engine/trace.hpp"
#include "common/machine/error.hpp"

#include <charconv>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace flash {
inline namespace simt {
namespace {

std::mutex mutex;
std::optional<Options> current;  // read from the environment when first asked for

template <class Number>
bool parse(std::string_view text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && stopped == end;
}

/// The value of an environment variable, or null if it is not set or empty.
const char* variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

[[noreturn]] void refuse(const char* name, const char* value, const char* allowed) {
  throw UsageError(std::string(name) + "=" + value + ": allowed are " + allowed);
}

}  // namespace

Options options_from_environment() {
  Options options;
  if (const char* const value = variable("FLASH_SIMT_ORDER")) {
    const std::string_view order = value, random = "random:";
    if (order == "forward") {
      options.order = Order::forward;
    } else if (order == "reverse") {
      options.order = Order::reverse;
    } else if (order.starts_with(random) && parse(order.substr(random.size()), options.seed)) {
      options.order = Order::random;
    } else {
      refuse("FLASH_SIMT_ORDER", value, "forward, reverse and random:SEED with a whole number as SEED");
    }
  }
  if (const char* const value = variable("FLASH_SIMT_THREADS")) {
    if (!parse<int>(value, options.os_threads) || options.os_threads < 1 || options.os_threads > 1024) {
      refuse("FLASH_SIMT_THREADS", value, "1 to 1024");
    }
  }
  if (const char* const value = variable("FLASH_SIMT_TARGET")) {
    const bool number = parse<int>(value, options.target_sm);
    if (!number || (options.target_sm != 75 && options.target_sm != 80 && options.target_sm != 90)) {
      refuse("FLASH_SIMT_TARGET", value, "75, 80 and 90");
    }
  }
  if (const char* const value = variable("FLASH_SIMT_STEPS")) {
    if (!parse<std::int64_t>(value, options.steps) || options.steps < 1 || options.steps > std::int64_t{1} << 62) {
      refuse("FLASH_SIMT_STEPS", value, "1 to 2^62");
    }
  }
  if (const char* const value = variable("FLASH_SIMT_TRACE")) {
    if (!machine::Trace::can_be(value))
      refuse("FLASH_SIMT_TRACE", value, "a new file, in a folder that is there, and a trace, which is written anew");
    options.trace = value;
  }
  return options;
}

Options options() {
  const std::lock_guard lock(mutex);
  if (!current) current = options_from_environment();
  return *current;
}

std::string order_text(const Options& options) {
  if (options.order == Order::random) return "random:" + std::to_string(options.seed);
  return options.order == Order::reverse ? "reverse" : "forward";
}

void set_options(const Options& options) {
  const std::lock_guard lock(mutex);
  current = options;
}

}  // namespace simt
}  // namespace flash
