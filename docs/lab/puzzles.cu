// Five kernels. In each of them one line is missing: yours. This command judges them at each save, and shows the first that is wrong:
//   common/run --watch docs/lab/puzzles.cu
// Stuck? Press h, twice for the answer. docs/chapters/cuda_from_zero.md explains what you need. b begins a kernel anew.
#include "judge.hpp"

// 1. Eight threads run this kernel. Each of them doubles one number: out[i] becomes 2 a[i].
__global__ void twice(const float* a, float* out) {
  const int i = threadIdx.x;  // 0 in the first thread, 7 in the last
  // YOUR LINE 1
}

// 2. Three blocks of four threads double ten numbers. The last two threads have none: they must not touch a or out.
__global__ void guard(int n, const float* a, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;  // 0 to 11, and n is 10
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
  for (float** array : {&a, &v, &out}) cudaMallocManaged(array, 10 * sizeof(float));
  const float numbers[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
  for (int i = 0; i < 10; ++i) a[i] = numbers[i], v[i] = 10 * i;
  clear(out, 10);
  twice<<<1, 8>>>(a, out);
  judge("1 of 5, twice", out, {6, 2, 8, 2, 10, 18, 4, 12}, "YOUR LINE 1: thread i doubles its own element of a");
  guard<<<3, 4>>>(10, a, out);
  judge("2 of 5, guard", out, {6, 2, 8, 2, 10, 18, 4, 12, 10, 6}, "YOUR LINE 2: of 12 threads, the last two touch nothing");
  barrier<<<1, 8>>>(a, out);
  judge("3 of 5, barrier", out, {1, 4, 1, 5, 9, 2, 6, 3}, "YOUR LINE 3: no thread reads before all have written");
  total<<<1, 8>>>(a, out);
  judge("4 of 5, sum", out, {31, 31, 31, 31, 31, 31, 31, 31}, "YOUR LINE 4: x becomes the sum of the x of all threads");
  attention<<<1, 8>>>(a, v, out);
  judge("5 of 5, attention", out, std::vector<float>(8, 50.4407f), "YOUR LINE 5: o is the mean of v, weighted by exp(s)");
  std::printf("All five are right. Next: press n, or common/run --watch docs/lab/flash.cu: five lines to FlashAttention\n");
}
