// The judge of the course: checks results that another process has saved. It runs no kernel of a student. Its only variant takes O, L and the
// gradients from the folder COURSE_SAVED, so that the harness checks them as it checks what a kernel has computed:
//
//   COURSE_SAVED=DIR build/bin/course_judge --variant saved --no-watch --json [--pass backward] PROBLEM
#include "common/base/error.hpp"
#include "common/harness/npy.hpp"
#include "common/harness/stage.hpp"
#include "common/isa/float16.hpp"

#include <cstdlib>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace flash {
namespace {

/// A saved array; not a number everywhere if the file is missing or holds something else: then the results are wrong, not the judge's input.
std::vector<float> saved_values(const std::string& file, const std::vector<std::int64_t>& shape) {
  try {
    NpyArray array = read_npy(file, shape.size());
    if (array.shape == shape) return std::move(array.values);
  } catch (const UsageError&) {
  }
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return std::vector<float>(count, std::numeric_limits<float>::quiet_NaN());
}

/// Copies a saved array into a tensor whose last axis may be left out of the file (L is (B,H,N)).
void take(const char* name, const TensorRef& tensor, std::size_t rank) {
  const char* const folder = std::getenv("COURSE_SAVED");
  if (folder == nullptr) throw UsageError("COURSE_SAVED is not set; allowed: a folder that a stage has written with --save");
  const std::vector<std::int64_t> shape(tensor.shape.begin(), tensor.shape.begin() + static_cast<std::ptrdiff_t>(rank));
  const std::vector<float> values = saved_values(std::string(folder) + "/" + name, shape);
  char* const data = static_cast<char*>(tensor.data);
  std::size_t next = 0;
  for (std::int64_t b = 0; b < tensor.shape[0]; ++b) {
    for (std::int64_t h = 0; h < tensor.shape[1]; ++h) {
      for (std::int64_t row = 0; row < tensor.shape[2]; ++row) {
        for (std::int64_t col = 0; col < tensor.shape[3]; ++col) {
          const std::int64_t place =
              b * tensor.stride[0] + h * tensor.stride[1] + row * tensor.stride[2] + col * tensor.stride[3];
          store(tensor.dtype, data + place * size_of(tensor.dtype), values[next++]);
        }
      }
    }
  }
}

void forward(const Attention& a) {
  take("o.npy", a.O, 4);
  take("lse.npy", a.L, 3);
}

void backward(const Attention& a) {
  take("dq.npy", a.dQ, 4);
  take("dk.npy", a.dK, 4);
  take("dv.npy", a.dV, 4);
}

const Variant saved{.name = "saved",
                    .idea = "results that another process has saved",
                    .forward = forward,
                    .backward = backward,
                    .dtypes = {Dtype::fp32, Dtype::fp16, Dtype::bf16},
                    .max_head_dim = 256};
const RegisterVariant registered(Backend::cpu, 1, saved, "docs/course/judge.cpp");

}  // namespace
}  // namespace flash

int main(int argc, char** argv) {
  return flash::run_stage({.name = "course_judge", .idea = "checks what another process has saved", .backward_stage = ""}, argc,
                          argv);
}
