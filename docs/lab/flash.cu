// Five more kernels with a line missing: the way from a softmax to FlashAttention. Judged at each save by
//   common/run --watch docs/lab/flash.cu
// Stuck? Press h, twice for the answer. docs/chapters/03_online_softmax.md derives lines 1 to 4, docs/chapters/04_fa1_forward.md line 5.
#include "judge.hpp"

// 1. The softmax weights of n scores are exp(s[j]) / sum. Here the scores are near 100, and expf(100) is more than a float can hold. A
// factor exp(-m) in all weights cancels: let l be the sum of exp(s[j] - m), where m is the greatest score.
__global__ void safe(int n, const float* s, float* out) {
  float m = s[0];
  for (int j = 1; j < n; ++j) m = fmaxf(m, s[j]);
  float l = 0;
  for (int j = 0; j < n; ++j) {
    // YOUR LINE 1
  }
  out[0] = l;
}

// 2. The same sum in one loop. m is now the greatest score so far, and l is the sum of exp(s[j] - m) so far. If a key raises m from old to
// m, all that l holds was taken relative to old: multiply it by a factor that makes it relative to m.
__global__ void online(int n, const float* s, float* out) {
  float m = s[0], l = 1;
  for (int j = 1; j < n; ++j) {
    const float old = m;
    m = fmaxf(old, s[j]);
    // YOUR LINE 2
    l += expf(s[j] - m);
    out[j] = l;
  }
}

// 3. Attention in one loop: o is the sum of exp(s[j] - m) v[j] so far, so that o / l is the output. S and P are never stored.
__global__ void output(int n, const float* s, const float* v, float* out) {
  float m = s[0], l = 1, o = v[0];
  for (int j = 1; j < n; ++j) {
    const float old = m;
    m = fmaxf(old, s[j]);
    l = l * expf(old - m) + expf(s[j] - m);
    // YOUR LINE 3
    out[j] = o / l;
  }
}

// 4. Two threads, each with half of the keys. In the end each has its own m and l, and gets other_m and other_l from its neighbour. What is
// l for all keys, relative to all_m?
__global__ void merge(const float* s, float* out) {
  const int t = threadIdx.x;  // has keys 2t and 2t + 1
  float m = fmaxf(s[2 * t], s[2 * t + 1]), l = expf(s[2 * t] - m) + expf(s[2 * t + 1] - m);
  const float other_m = __shfl_xor_sync(3, m, 1), other_l = __shfl_xor_sync(3, l, 1);
  const float all_m = fmaxf(m, other_m);
  // YOUR LINE 4
  out[t] = l;
}

// 5. FlashAttention: thread i has query i, whose scores are q[i] k[j]. K and V are loaded in tiles of four keys, by all four threads
// together, and then all read them. One line is missing, and on a GPU the numbers may be right without it.
__global__ void flash_attention(int n, const float* q, const float* k, const float* v, float* out) {
  __shared__ float K[4], V[4];
  const int i = threadIdx.x;
  float m = -INFINITY, l = 0, o = 0;
  for (int tile = 0; tile < n; tile += 4) {
    K[i] = k[tile + i];
    V[i] = v[tile + i];
    __syncthreads();  // before any thread reads the tile, all have written it
    for (int j = 0; j < 4; ++j) {
      const float s = q[i] * K[j], old = m;
      m = fmaxf(old, s);
      const float p = expf(s - m), correction = expf(old - m);
      l = l * correction + p;
      o = o * correction + p * V[j];
    }
    // YOUR LINE 5
  }
  out[i] = o / l;
}

// ---- None of your lines is below. ----

int main() {
  float *s, *large, *v, *q, *out;
  for (float** array : {&s, &large, &v, &q}) cudaMallocManaged(array, 16 * sizeof(float));
  cudaMallocManaged(&out, SIZE * sizeof(float));
  const float scores[] = {1, 2, 4, 0, 3, 1, 0, 2};  // of the running example, and four more
  fill = [&] {
    for (int i = 0; i < 16; ++i) {
      const float more = run * (0.75f - 0.375f * (i % 5));
      s[i] = scores[i % 8] + more, large[i] = 96 - 2 * run + s[i], v[i] = 10 * i + more, q[i] = 1 - i + more;
    }
  };
  judge("1 of 5, safe", out, {1.203438f}, {1.594072f}, "YOUR LINE 1: l becomes the sum of all weights, relative to m",
        [&] { safe<<<1, 1>>>(4 + 2 * run, large, out); });
  judge("2 of 5, online", out, {UNWRITTEN, 1.367879f, 1.185122f, 1.203438f},
        {UNWRITTEN, 1.535261f, 1.302311f, 1.314899f, 1.488673f, 1.594072f},
        "YOUR LINE 2: l, relative to old, becomes relative to m", [&] { online<<<1, 1>>>(4 + 2 * run, s, out); });
  judge("3 of 5, output", out, {UNWRITTEN, 7.310586f, 18.01785f, 18.20021f},
        {UNWRITTEN, 7.019291f, 16.98673f, 17.10773f, 19.69241f, 21.74592f},
        "YOUR LINE 3: o becomes relative to m, plus the term of j", [&] { output<<<1, 1>>>(4 + 2 * run, s, v, out); });
  judge("4 of 5, merge", out, {1.203438f, 1.203438f}, {1.314899f, 1.314899f},
        "YOUR LINE 4: l becomes the sum for all four keys, relative to all_m", [&] { merge<<<1, 2>>>(s, out); });
  judge("5 of 5, flash", out, {27.99245f, 35, 39.54377f, 42.56837f}, {84.58802f, 73.49068f, 88.86289f, 104.9219f},
        "YOUR LINE 5: no tile is overwritten while others read it",
        [&] { flash_attention<<<1, 4>>>(8 + 8 * run, q, s, v, out); });
  std::printf(
      "All five are right: that is FlashAttention. Next: press n, or docs/course/course.py watch mine 03_online_sum:\n"
      "more of a kernel, judged at each save. Or read docs/chapters/00_introduction.md\n");
}
