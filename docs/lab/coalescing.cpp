// How many 32-byte sectors of HBM does one load of a warp touch? Each lane notes the address that it reads; the host counts.
#include "docs/lab/lab.hpp"

#include <set>

namespace {

using namespace flash;
using namespace flash::lab;

constexpr int WARP = 32;
constexpr int SECTOR_BYTES = 32;
constexpr int COLS = 128;  // of the matrix that is read, WARP rows

/// Lane t reads M(first_row + t * row_step, first_col + t * col_step) and notes how many bytes behind the start of M that lies.
struct Pattern {
  const char* name;
  int first_col, row_step, col_step;
};

__global__ void load_kernel(Pattern pattern, Matrix<float> M, Vector<float> offset_bytes) {
  const int t = threadIdx.x;
  const float* address = M.address(t * pattern.row_step, pattern.first_col + t * pattern.col_step);
  offset_bytes(t) = static_cast<float>(sizeof(float) * static_cast<std::size_t>(address - M.data));
}

}  // namespace

int main() {
  Claims claims;
  const Pattern patterns[] = {
      {"all lanes one element", 0, 0, 0},         {"along a row", 0, 0, 1},   {"along a row, from column 3", 3, 0, 1},
      {"every second element of a row", 0, 0, 2}, {"down a column", 0, 1, 0},
  };
  const int expected[] = {1, 4, 5, 8, 32};

  std::printf("one load of a warp from a matrix with %d columns of 4 bytes; 128 bytes are wanted\n\n", COLS);
  std::printf("pattern                        sectors  bytes moved\n");
  for (int p = 0; p < 5; ++p) {
    Array M("M", WARP, COLS), offset_bytes("offset_bytes", WARP, 1);
    launch("load", {dim3(1), dim3(WARP)}, load_kernel, patterns[p], M.matrix(), offset_bytes.vector());
    std::set<int> sectors;
    for (int t = 0; t < WARP; ++t) sectors.insert(static_cast<int>(offset_bytes(t, 0)) / SECTOR_BYTES);
    const int count = static_cast<int>(sectors.size());
    std::printf("%-29s  %7d  %11d\n", patterns[p].name, count, count * SECTOR_BYTES);
    claims.check(count == expected[p], patterns[p].name);
  }
  return claims.exit_code();
}
