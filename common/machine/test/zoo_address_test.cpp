// Plain pointers that leave their memory: AddressSanitizer names the line, for shared memory too.
#include "common/machine/test/alone.hpp"
#include "common/machine/test/zoo.hpp"

#include <array>
#include <memory>

namespace flash {
namespace {

__global__ void write_shared(int index) {
  float* const memory = dynamic_shared<float>(64);
  memory[index] = 1.0f;  // BUG shared
}
__global__ void write_global(float* memory, int index) {
  memory[index] = 1.0f;  // BUG global
}
/// The stack of a simulated thread is watched as any other, and is clean again when the next one uses it.
__global__ void write_local(float* out, int index) {
  float array[8] = {};
  array[index] = 1.0f;  // BUG local
  __syncthreads();
  out[threadIdx.x] = array[index % 8];
}

void run_case(const std::string& name) {
  const auto memory = std::make_unique<std::array<float, 64>>();
  if (name == "shared below") launch("zoo", {dim3(1), dim3(1), 256}, write_shared, -1);
  if (name == "shared above") launch("zoo", {dim3(1), dim3(1), 256}, write_shared, 64);
  if (name == "shared right") launch("zoo", {dim3(1), dim3(1), 256}, write_shared, 63);
  if (name == "global") launch("zoo", {dim3(1), dim3(1)}, write_global, memory->data(), 64);
  if (name == "global right") launch("zoo", {dim3(1), dim3(1)}, write_global, memory->data(), 63);
  if (name == "local") launch("zoo", {dim3(1), dim3(64)}, write_local, memory->data(), 8);
  if (name == "local right") {
    for (int i = 0; i < 3; ++i) launch("zoo", {dim3(3), dim3(64)}, write_local, memory->data(), 7);
  }
}

}  // namespace

TEST_CASE("zoo: addresses") {
  for (const std::string name :
       {"shared below", "shared above", "shared right", "global", "global right", "local", "local right"}) {
    const Outcome outcome = run_alone("'" + name + "'");
    CAPTURE(name);
    CAPTURE(outcome.output);
    if (name.ends_with("right")) {
      CHECK(outcome.exit_code == 0);
      CHECK(outcome.output == "");
    } else {
      CHECK(outcome.exit_code != 0);
      CHECK(has(outcome.output, {"zoo_address_test.cpp"}));
      CHECK(has(outcome.output, {BUG(name.substr(0, name.find(' ')))}));
    }
  }
}

}  // namespace flash

int main(int argc, char** argv) {
  const std::string name = flash::name_to_run_alone(argc, argv);
  if (name.empty()) return doctest::Context(argc, argv).run();
  flash::run_case(name);
  return 0;
}
