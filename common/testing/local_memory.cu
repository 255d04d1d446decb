// An array with a run-time index lies in local memory: with the warnings that the stages' kernels are compiled with, as errors, this
// must not compile.
__global__ void local_memory(float* values, int count) {
  float sums[64];
  for (int i = 0; i < 64; ++i) sums[i] = values[i];
  for (int i = 0; i < count; ++i) sums[static_cast<int>(values[i])] += 1.0f;
  for (int i = 0; i < 64; ++i) values[i] = sums[i];
}
