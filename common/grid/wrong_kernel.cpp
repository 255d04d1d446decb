// For tests: a kernel that writes one element of O, and reads beyond the end of Q where there are 33 queries.
#include "common/device/device.cuh"

namespace flash {
namespace {

__global__ void wrong_kernel(Problem problem, Tensor<const float> Q, Tensor<float> O) {
  O.head(0, 0)(0, 0) = Q.head(0, 0)(problem.Nq == 33 ? problem.Nq : 0, 0);
}

void forward(const Attention& a) {
  launch("wrong", {dim3(1), dim3(1)}, wrong_kernel, a.problem, view<const float>(a.Q), view<float>(a.O));
}

const Variant wrong{.name = "wrong", .idea = "", .forward = forward};
const RegisterVariant registered(Backend::cpu, 1, wrong, "99_wrong/kernel.cuh");

}  // namespace
}  // namespace flash
