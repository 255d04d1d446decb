#include "common/machine/engine/trace.hpp"

#include "common/machine/engine/messages.hpp"
#include "common/machine/error.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

namespace flash::machine {
namespace {

const std::string first_line = "{\"trace\": \"flash-steps\"}";

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
std::unique_ptr<std::FILE, Close> file;
std::string name;
Trace trace;

}  // namespace

bool Trace::can_be(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::path(path).parent_path();
  if (!fs::exists(path, error)) return folder.empty() || fs::is_directory(folder, error);
  if (!fs::is_regular_file(path, error)) return false;
  if (fs::is_empty(path, error)) return true;
  std::ifstream before(path);
  std::string line;
  return std::getline(before, line) && line == first_line;
}

void Trace::open(const std::string& path) {
  if (path == name) return;
  file.reset();
  name.clear();
  if (path.empty()) return;
  if (can_be(path)) file.reset(std::fopen(path.c_str(), "w"));
  if (file == nullptr) throw UsageError("FLASH_SIMT_TRACE=" + path + ": cannot be written");
  name = path;
  std::fprintf(file.get(), "%s\n", first_line.c_str());
}

Trace* Trace::start_block(const KernelCall& kernel) {
  if (file == nullptr) return nullptr;
  const dim3 &grid = kernel.shape.grid, &block = kernel.shape.block;
  trace.lines_.clear();
  std::fprintf(file.get(), "{\"kernel\": \"%s\", \"blocks\": %u, \"threads\": %u}\n", kernel.name, grid.x * grid.y * grid.z,
               block.x * block.y * block.z);
  return &trace;
}

void Trace::end_block() { std::fflush(file.get()); }

void Trace::add(const char* event, int warp, std::initializer_list<Number> numbers, Site site, const char* tensor) {
  std::string line = std::string("{\"event\": \"") + event + "\", \"warp\": " + std::to_string(warp);
  for (const Number& number : numbers) line += std::string(", \"") + number.name + "\": " + std::to_string(number.value);
  if (tensor != nullptr) line += std::string(", \"tensor\": \"") + tensor + "\"";
  line += ", \"at\": \"" + words(site) + "\"}\n";
  if (lines_.insert(line).second) std::fputs(line.c_str(), file.get());
}

}  // namespace flash::machine
