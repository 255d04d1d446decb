#include "common/machine/host_memory.hpp"

#include "common/machine/error.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <limits>

namespace flash {
namespace {

constexpr double unknown = std::numeric_limits<double>::infinity();

/// A file that holds one number, as the control groups of Linux have them; `unknown` for "max" or no file.
double number_in(const char* path) {
  std::ifstream file(path);
  double value = 0;
  return file >> value ? value : unknown;
}

double free_in_container() {
  const double limit = number_in("/sys/fs/cgroup/memory.max");
  const double used = number_in("/sys/fs/cgroup/memory.current");
  return limit < unknown && used < unknown ? std::max(0.0, limit - used) : unknown;
}

double free_in_machine() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  double kibibytes = 0;
  while (file >> key) {
    if (key == "MemAvailable:" && file >> kibibytes) return kibibytes * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
#ifdef _SC_PHYS_PAGES  // no /proc: the memory that is installed
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
#else
  return unknown;
#endif
}

}  // namespace

double available_host_memory() { return std::min(free_in_container(), free_in_machine()); }

std::string bytes_text(double bytes) {
  constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < units.size(); ++unit) bytes /= 1024;
  char text[48];
  std::snprintf(text, sizeof text, bytes < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
  return text;
}

void require_host_memory(double bytes, const std::string& purpose) {
  const double available = available_host_memory();
  if (bytes <= available) return;
  throw DeviceError(purpose + " needs " + bytes_text(bytes) + " of main memory; " + bytes_text(available) + " are available");
}

}  // namespace flash
