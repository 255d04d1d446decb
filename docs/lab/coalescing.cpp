// How many 32-byte sectors of HBM does one load of a warp touch? The simulator counts them; the pattern decides.
#include "docs/lab/lab.hpp"

namespace {

using namespace flash;
using namespace flash::lab;

constexpr int WARP = 32;
constexpr int SECTOR_BYTES = 32;
constexpr int COLS = 128;  // of the matrix that is read, WARP rows

/// Lane t reads M(t * row_step, first_col + t * col_step).
struct Pattern {
  const char* name;
  int first_col, row_step, col_step;
};

__global__ void load_kernel(Pattern pattern, Matrix<const float> M, Vector<float> out) {
  const int t = threadIdx.x;
  out(t) = M(t * pattern.row_step, pattern.first_col + t * pattern.col_step);
}

/// The sectors that one warp's load of this pattern touches.
std::uint64_t sectors_of(const Pattern& pattern) {
  Array M("M", WARP, COLS), out("out", WARP, 1);
  start_counting();
  launch("load", {dim3(1), dim3(WARP)}, load_kernel, pattern, M.const_matrix(), out.vector());
  for (const TensorTraffic& traffic : counters().traffic) {
    if (traffic.tensor == "M") return traffic.read_sectors;
  }
  return 0;
}

}  // namespace

int main() {
  Claims claims;
  const Pattern patterns[] = {
      {"all lanes one element", 0, 0, 0},         {"along a row", 0, 0, 1},   {"along a row, from column 3", 3, 0, 1},
      {"every second element of a row", 0, 0, 2}, {"down a column", 0, 1, 0},
  };
  const std::uint64_t expected[] = {1, 4, 5, 8, 32};

  std::printf("one load of a warp from a matrix with %d columns of 4 bytes; 128 bytes are wanted\n\n", COLS);
  std::printf("pattern                        sectors  bytes moved\n");
  for (int p = 0; p < 5; ++p) {
    const std::uint64_t sectors = sectors_of(patterns[p]);
    std::printf("%-29s  %7d  %11d\n", patterns[p].name, static_cast<int>(sectors), static_cast<int>(sectors) * SECTOR_BYTES);
    claims.check(sectors == expected[p], patterns[p].name);
  }
  return claims.exit_code();
}
