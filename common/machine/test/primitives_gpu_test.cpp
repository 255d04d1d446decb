// Every primitive on a GPU, word by word against the simulator. Exit code 77, "skipped", where no GPU answers.
#include "common/machine/device.hpp"
#include "common/machine/test/primitives.hpp"

#include <cstdio>
#include <exception>
#include <string>

namespace {

using flash::Buffer;
using flash::Primitive;

std::vector<unsigned> run(flash::Device& device, const Primitive& primitive, const std::vector<unsigned>& in) {
  std::vector<unsigned> out(static_cast<std::size_t>(primitive.threads * primitive.words));
  Buffer device_in(device, in.size() * sizeof(unsigned)), device_out(device, out.size() * sizeof(unsigned));
  device.upload(device_in.data(), in.data(), device_in.bytes());
  device_out.poison();
  device.run(
      [&] { primitive.launch(static_cast<const unsigned*>(device_in.data()), static_cast<unsigned*>(device_out.data())); });
  device.download(out.data(), device_out.data(), device_out.bytes());
  return out;
}

/// Compares all primitives on several inputs; returns how many words differ.
int compare(flash::Device& gpu, flash::Device& cpu) {
  int differing = 0;
  const auto& on_gpu = flash::gpu_primitives();
  const auto& on_cpu = flash::cpu_primitives();
  for (std::size_t p = 0; p < on_gpu.size(); ++p) {
    // limits().sm: what the kernels were compiled for, which may be older than the GPU.
    if (gpu.limits().sm < on_gpu[p].least_sm || gpu.info().sm > on_gpu[p].most_sm) {
      std::printf("%-23s needs sm_%d, and code for it\n", on_gpu[p].name, on_gpu[p].least_sm);
      continue;
    }
    int wrong = 0;
    for (unsigned seed = 1; seed <= 20; ++seed) {
      const std::vector<unsigned> in = flash::random_words(seed, flash::primitive_inputs);
      const std::vector<unsigned> got = run(gpu, on_gpu[p], in), expected = run(cpu, on_cpu[p], in);
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (got[i] == expected[i]) continue;
        const int words = on_gpu[p].words;
        if (wrong++ == 0) {
          std::printf("%-23s seed %u thread %d word %d: GPU %08x, simulator %08x\n", on_gpu[p].name, seed,
                      static_cast<int>(i) / words, static_cast<int>(i) % words, got[i], expected[i]);
        }
      }
    }
    std::printf("%-23s %s\n", on_gpu[p].name, wrong == 0 ? "equal" : "DIFFERS");
    differing += wrong;
  }
  return differing;
}

}  // namespace

int main() {
  try {
    std::string why_not;
    const auto gpu = flash::open_gpu(why_not);
    if (gpu == nullptr) {
      std::printf("skipped: %s\n", why_not.c_str());
      return 77;
    }
    const auto cpu = flash::open_cpu();
    return compare(*gpu, *cpu) == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
