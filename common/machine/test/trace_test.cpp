// What FLASH_SIMT_TRACE writes of a kernel that has a producer warp and a ring, and what it leaves alone.
#include "common/machine/hopper.cuh"
#include "common/machine/test/primitives.hpp"
#include "common/machine/test/zoo.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace flash {
namespace {

struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / "flash_trace_XXXXXX";
  Folder() {
    std::string name = path;
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string operator/(const char* file) const { return path / file; }
};

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> trace_of_ring(Options options, const std::string& path) {
  options.trace = path;
  set_options(options);
  const auto is_ring = [](const Primitive& primitive) { return primitive.name == std::string("ring"); };
  const Primitive& ring = *std::find_if(cpu_primitives().begin(), cpu_primitives().end(), is_ring);
  const std::vector<unsigned> in = random_words(1, primitive_inputs);
  std::vector<unsigned> out(static_cast<std::size_t>(ring.threads * ring.words));
  ring.launch(in.data(), out.data());
  set_options({});
  return lines_of(path);
}

/// Where the line with this text is; there must be one alone.
std::size_t place(const std::vector<std::string>& lines, const std::string& text) {
  const auto with = [&](const std::string& line) { return line.find(text) != std::string::npos; };
  CAPTURE(text);
  REQUIRE(std::count_if(lines.begin(), lines.end(), with) == 1);
  return static_cast<std::size_t>(std::find_if(lines.begin(), lines.end(), with) - lines.begin());
}

}  // namespace

TEST_CASE("trace: the ring, under every order of the threads") {
  const Folder folder;
  for (const Order order : {Order::forward, Order::reverse, Order::random}) {
    const std::string file = "ring" + std::to_string(static_cast<int>(order)) + ".jsonl";
    const std::vector<std::string> lines = trace_of_ring({.order = order, .seed = 5}, folder / file.c_str());
    const auto at = [&](const std::string& text) { return place(lines, text); };
    CHECK(lines[0] == "{\"trace\": \"flash-steps\"}");
    CHECK(at("{\"kernel\": \"ring_inputs\", \"blocks\": 1, \"threads\": 160}") <
          at("{\"kernel\": \"ring\", \"blocks\": 1, \"threads\": 160}"));
    // Barriers 1 and 2: stage 0 is full, stage 0 is empty. The first wait for an empty stage is for the phase before the first.
    CHECK(at("\"wait\", \"warp\": 4, \"barrier\": 2, \"phase\": -1,") <
          at("\"load\", \"warp\": 4, \"barrier\": 1, \"phase\": 0, \"to\": "));
    CHECK(at("\"load\", \"warp\": 4, \"barrier\": 1, \"phase\": 0,") <
          at("\"landed\", \"warp\": 4, \"barrier\": 1, \"phase\": 0,"));
    for (const std::string warp : {"0", "1", "2", "3"}) {
      const std::string begin = "\"warp\": " + warp + ", \"barrier\": ";
      CHECK(at("\"landed\", \"warp\": 4, \"barrier\": 1, \"phase\": 0,") < at("\"waited\", " + begin + "1, \"phase\": 0,"));
      CHECK(at("\"wgmma waited\", \"warp\": " + warp + ", \"products\": 4,") < at("\"arrive\", " + begin + "2, \"phase\": 0,"));
      CHECK(at("\"arrive\", " + begin + "2, \"phase\": 0,") < at("\"load\", \"warp\": 4, \"barrier\": 1, \"phase\": 1,"));
    }
    const auto loads = [](const std::string& line) { return line.find("\"landed\"") != std::string::npos; };
    const auto products = [](const std::string& line) { return line.find("\"wgmma\"") != std::string::npos; };
    CHECK(std::count_if(lines.begin(), lines.end(), loads) == 4);
    CHECK(std::count_if(lines.begin(), lines.end(), products) == 3 * 4);
  }
}

/// For the picture in docs/chapters/08h_instruments.md: docs/save_results.sh.
TEST_CASE("trace: the ring for its picture" * doctest::skip()) {
  const std::string path = options_from_environment().trace;
  CHECK(trace_of_ring({}, path).empty() == path.empty());
}

TEST_CASE("trace: nothing is overwritten but a trace") {
  const Folder folder;
  const std::string mine = folder / "mine.txt", trace = folder / "trace.jsonl";
  std::ofstream(mine) << "my words\n";
  CHECK_THROWS_WITH_AS(trace_of_ring({}, mine), doctest::Contains("mine.txt: cannot be written"), UsageError);
  set_options({});
  CHECK(lines_of(mine) == std::vector<std::string>{"my words"});
  const std::size_t lines = trace_of_ring({}, trace).size();
  trace_of_ring({}, "");
  std::ofstream(trace, std::ios::app) << "more\n";
  CHECK(trace_of_ring({}, trace).size() == lines);

  const auto refused = [](const std::string& path) {
    setenv("FLASH_SIMT_TRACE", path.c_str(), 1);
    std::string message;
    try {
      if (options_from_environment().trace != path) message = "another path";
    } catch (const UsageError& error) {
      message = error.what();
    }
    unsetenv("FLASH_SIMT_TRACE");
    return message;
  };
  CHECK(refused(mine) ==
        "FLASH_SIMT_TRACE=" + mine + ": allowed are a new file, in a folder that is there, and a trace, which is written anew");
  CHECK(refused(trace) == "");
  CHECK(refused(folder / "new.jsonl") == "");
  CHECK(!std::filesystem::exists(folder / "new.jsonl"));
}

}  // namespace flash
