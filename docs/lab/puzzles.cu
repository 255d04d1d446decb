// Five kernels. In each of them one line is missing: yours. This command judges them at each save, and shows the first that is wrong:
//   common/run --watch docs/lab/puzzles.cu
// Stuck? Press h, twice for the answer. docs/chapters/cuda_from_zero.md explains what you need. b begins a kernel anew.
#include "judge.hpp"

// 1. Eight threads run this kernel. Each of them doubles one number: out[i] becomes 2 a[i].
__global__ void twice(const float* a, float* out) {
  const int i = threadIdx.x;  // 0 in the first thread, 7 in the last
  // YOUR LINE 1
}

// 2. Three blocks of four threads double n numbers. The last threads have none: they must not touch a or out.
__global__ void guard(int n, const float* a, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;  // 0 to 11; n is 10 at first, then 9
  // YOUR LINE 2
  out[i] = 2 * a[i];
}

// 3. Each thread reads what the next one writes to the memory that they share. It has to wait for it.
__global__ void barrier(const float* a, float* out) {
  __shared__ float s[8];
  const int i = threadIdx.x;
  s[i] = a[i];
  // YOUR LINE 3
  out[i] = s[(i + 1) % 8];
}

// 4. The sum of the x of eight threads, in three steps: each adds the x of the thread 4, 2, then 1 away, which is
// __shfl_xor_sync(0xff, x, distance). No shared memory, no barrier.
__device__ float sum(float x) {
  for (int distance = 4; distance > 0; distance /= 2) {
    // YOUR LINE 4
  }
  return x;
}

__global__ void total(const float* a, float* out) { out[threadIdx.x] = sum(a[threadIdx.x]); }

// 5. Attention for one query: thread j has the score s[j] of key j, and its value v[j]. The weight of a key is expf(s[j]), and o is
// the mean of all values with these weights: the sum of weight times value, divided by the sum of the weights.
__global__ void attention(const float* s, const float* v, float* out) {
  const int j = threadIdx.x;
  float o = 0;
  // YOUR LINE 5
  out[j] = o;
}

// ---- None of your lines is below. ----

int main() {
  float *a, *v, *out;
  for (float** array : {&a, &v, &out}) cudaMallocManaged(array, SIZE * sizeof(float));
  const float numbers[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
  fill = [&] {
    for (int i = 0; i < SIZE; ++i) a[i] = numbers[i] + run * (1.375f - 0.75f * i), v[i] = 10 * i + run * 0.5f;
  };
  judge("1 of 5, twice", out, {6, 2, 8, 2, 10, 18, 4, 12}, {8.75f, 3.25f, 7.75f, 0.25f, 6.75f, 13.25f, -2.25f, 4.25f},
        "YOUR LINE 1: thread i doubles its own element of a", [&] { twice<<<1, 8>>>(a, out); });
  judge("2 of 5, guard", out, {6, 2, 8, 2, 10, 18, 4, 12, 10, 6},
        {8.75f, 3.25f, 7.75f, 0.25f, 6.75f, 13.25f, -2.25f, 4.25f, 0.75f},
        "YOUR LINE 2: of 12 threads, those without a number touch nothing", [&] { guard<<<3, 4>>>(10 - run, a, out); });
  judge("3 of 5, barrier", out, {1, 4, 1, 5, 9, 2, 6, 3}, {1.625f, 3.875f, 0.125f, 3.375f, 6.625f, -1.125f, 2.125f, 4.375f},
        "YOUR LINE 3: no thread reads before all have written", [&] { barrier<<<1, 8>>>(a, out); });
  judge("4 of 5, sum", out, Numbers(8, 31), Numbers(8, 21), "YOUR LINE 4: x becomes the sum of the x of all threads",
        [&] { total<<<1, 8>>>(a, out); });
  judge("5 of 5, attention", out, Numbers(8, 50.44073f), Numbers(8, 44.27087f),
        "YOUR LINE 5: o is the mean of v, weighted by exp(s)", [&] { attention<<<1, 8>>>(a, v, out); });
  std::printf("All five are right. Next: press n, or common/run --watch docs/lab/flash.cu: five lines to FlashAttention\n");
}
