// Which lane holds what in a tensor-core product, and where a swizzled tile keeps its chunks: printed from the index functions of
// common/machine/isa/fragments.hpp, and checked against ldmatrix and mma. With --json: the functions' values, for docs/tools.
#include "common/machine/isa/fragments.hpp"
#include "common/machine/float16.cuh"
#include "common/machine/ptx.cuh"
#include "docs/lab/lab.hpp"

#include <cstring>

namespace {

using namespace flash;
using namespace flash::lab;
using namespace flash::fragment;

constexpr int WIDTHS[] = {32, 64, 96, 128, 256};

/// Prints a matrix of [rows, cols] cells, each "lane:register" of what find(lane, reg) says is its place.
template <class Find>
void print_holders(const char* title, const char* row_name, const char* name, int rows, int cols, int registers, Find find) {
  std::vector<std::string> cells(static_cast<std::size_t>(rows * cols));
  for (int lane = 0; lane < 32; ++lane) {
    for (int reg = 0; reg < registers; ++reg) {
      const auto [row, col] = find(lane, reg);
      std::string& cell = cells[static_cast<std::size_t>(row * cols + col)];
      if (cell.empty()) cell = std::to_string(lane) + ":" + name;
      cell += std::to_string(reg);
    }
  }
  std::printf("%s\n", title);
  for (int row = 0; row < rows; ++row) {
    std::printf("  %s %-2d ", row_name, row);
    for (int col = 0; col < cols; ++col) std::printf(" %6s", cells[static_cast<std::size_t>(row * cols + col)].c_str());
    std::printf("\n");
  }
  std::printf("\n");
}

struct Cell {
  int row, col;
};

void print_fragments() {
  const auto a = [](int lane, int reg) { return Cell{a_row(lane, reg), a_col(lane, reg) / 2}; };
  print_holders("A [16, 16] of m16n8k16, lane:register of columns (0,1), (2,3), ..., (14,15); m16n8k8 has the left half", "row",
                "a", 16, 8, 4, a);
  const auto b = [](int lane, int reg) { return Cell{b_row(lane, reg) / 2, b_col(lane)}; };
  print_holders("B [16, 8] of m16n8k16, a line is two rows (0,1), (2,3), ...; m16n8k8 has the upper half", "pair", "b", 8, 8, 2,
                b);
  const auto c = [](int lane, int reg) { return Cell{c_row(lane, reg), c_col(lane, reg) / 2}; };
  print_holders("C [16, 8], fp32, columns (0,1), (2,3), (4,5), (6,7)", "row", "c", 16, 4, 4, c);
  const auto plain = [](int lane, int) { return Cell{ldmatrix_row(lane), ldmatrix_col(lane, 0) / 2}; };
  print_holders("ldmatrix: columns (0,1), ... of an 8 x 8 matrix", "row", "r", 8, 4, 1, plain);
  const auto trans = [](int lane, int) { return Cell{ldmatrix_trans_row(lane, 0) / 2, ldmatrix_trans_col(lane)}; };
  print_holders("ldmatrix.trans: a line is two rows (0,1), ...", "pair", "r", 4, 8, 1, trans);
}

unsigned half_bits(int value) { return __half_as_ushort(__float2half_rn(static_cast<float>(value))); }

/// D = A B with A [16, 16] and B^T [8, 16] in shared memory, both by ldmatrix.
__global__ void product_kernel(const unsigned short* A, const unsigned short* Bt, Matrix<float> D) {
  unsigned short* const tile = dynamic_shared<unsigned short>(24 * 16);
  const int lane = threadIdx.x;
  for (int i = lane; i < 16 * 16; i += 32) tile[i] = A[i];
  for (int i = lane; i < 8 * 16; i += 32) tile[16 * 16 + i] = Bt[i];
  __syncwarp();  // read after write: ldmatrix reads what other lanes have written
  unsigned a[4], b[2];
  float d[4] = {};
  ldmatrix_x4(a, tile + lane % 16 * 16 + lane / 16 * 8);  // matrix m: rows 8 (m % 2), columns 8 (m / 2) on
  ldmatrix_x2(b, tile + 16 * 16 + lane % 8 * 16 + lane / 8 % 2 * 8);
  mma_m16n8k16_f16(d, a, b, d);
  for (int reg = 0; reg < 4; ++reg) D(c_row(lane, reg), c_col(lane, reg)) = d[reg];
}

void check_product(Claims& claims) {
  std::array<unsigned short, 16 * 16> A;
  std::array<unsigned short, 8 * 16> Bt;
  const auto a = [](int row, int k) { return (3 * row + 5 * k) % 11 - 5; };
  const auto b = [](int k, int col) { return (7 * k + 2 * col) % 13 - 6; };
  for (int i = 0; i < 16 * 16; ++i) A[static_cast<std::size_t>(i)] = static_cast<unsigned short>(half_bits(a(i / 16, i % 16)));
  for (int i = 0; i < 8 * 16; ++i) Bt[static_cast<std::size_t>(i)] = static_cast<unsigned short>(half_bits(b(i % 16, i / 16)));
  Array D("D", 16, 8);
  launch("product", {dim3(1), dim3(32), 2 * 24 * 16}, product_kernel, A.data(), Bt.data(), D.matrix());
  for (int row = 0; row < 16; ++row) {
    for (int col = 0; col < 8; ++col) {
      int sum = 0;
      for (int k = 0; k < 16; ++k) sum += a(row, k) * b(k, col);
      claims.check(D(row, col) == static_cast<float>(sum), "D = A B with operands by ldmatrix and D where c_row, c_col say");
    }
  }
}

enum class Place { plain, padded, swizzled };

int stride_of(int width, Place place) { return place == Place::padded ? width + 8 : width; }
int chunk_at(int width, Place place, int row, int chunk) {
  return place == Place::swizzled ? swizzled_chunk(width, row, chunk) : chunk;
}
/// The eighth of the 32 banks in which a chunk of a tile lies.
int bank_group(int width, Place place, int row, int chunk) {
  return (row * stride_of(width, place) / 8 + chunk_at(width, place, row, chunk)) % 8;
}

/// Loads the chunks of one column of a tile of eight rows, one column after the other.
__global__ void load_columns_kernel(int width, Place place, unsigned* out) {
  unsigned short* const tile = dynamic_shared<unsigned short>(8 * stride_of(width, place));
  const int lane = threadIdx.x, row = lane % 8;
  for (int i = lane; i < 8 * stride_of(width, place); i += 32) tile[i] = 0;
  __syncwarp();  // read after write
  for (int chunk = 0; chunk < width / 8; ++chunk) {
    unsigned r[1];
    ldmatrix_x1(r, tile + row * stride_of(width, place) + 8 * chunk_at(width, place, row, chunk));
    out[lane] = r[0];
  }
}

void print_banks(Claims& claims, int width) {
  const char* const names[] = {"plain", "padded by 8", "swizzled"};
  std::printf("rows of %d numbers, %d bytes: banks/4 in which chunks 0 to %d of rows 0 to 7 lie\n", width, 2 * width,
              width / 8 - 1);
  for (const Place place : {Place::plain, Place::padded, Place::swizzled}) {
    const std::size_t bytes = 16 * static_cast<std::size_t>(stride_of(width, place));
    std::array<unsigned, 32> out;
    start_counting();
    launch("load_columns", {dim3(1), dim3(32), bytes}, load_columns_kernel, width, place, out.data());
    const auto conflicts = static_cast<int>(counters().bank_conflicts);
    for (int row = 0; row < 8; ++row) {
      std::printf("  %-11s row %d ", row == 0 ? names[static_cast<int>(place)] : "", row);
      for (int chunk = 0; chunk < width / 8; ++chunk) std::printf(" %d", bank_group(width, place, row, chunk));
      if (row == 7) std::printf("   extra clocks of a column: %d", conflicts / (width / 8));
      std::printf("\n");
    }
    const int expected = place != Place::plain ? 0 : width % 64 == 0 ? 7 : 3;
    claims.check(conflicts == expected * (width / 8), "extra clocks are the rows in the fullest banks - 1");
  }
  std::printf("\n");
}

template <class Function>
void print_json(const char* name, int rows, int cols, Function function) {
  std::printf("  \"%s\": [", name);
  for (int i = 0; i < rows * cols; ++i) std::printf("%s%d", i == 0 ? "" : ", ", function(i / cols, i % cols));
  std::printf("],\n");
}

/// Each function's values by lane and register (both numbers of it), or by row and chunk.
void print_all_as_json() {
  const auto two = [](auto function) { return [=](int lane, int i) { return function(lane, i / 2, i % 2); }; };
  std::printf("{\n");
  print_json("a_row", 32, 4, a_row);
  print_json("a_col", 32, 8, two(a_col));
  print_json("b_row", 32, 4, two(b_row));
  print_json("b_col", 32, 1, [](int lane, int) { return b_col(lane); });
  print_json("c_row", 32, 4, c_row);
  print_json("c_col", 32, 4, c_col);
  print_json("ldmatrix_row", 32, 1, [](int lane, int) { return ldmatrix_row(lane); });
  print_json("ldmatrix_col", 32, 2, ldmatrix_col);
  print_json("ldmatrix_trans_row", 32, 2, ldmatrix_trans_row);
  print_json("ldmatrix_trans_col", 32, 1, [](int lane, int) { return ldmatrix_trans_col(lane); });
  for (const int width : WIDTHS) {
    print_json(("swizzled_chunk " + std::to_string(width)).c_str(), 16, width / 8,
               [=](int row, int chunk) { return swizzled_chunk(width, row, chunk); });
  }
  std::printf("  \"lanes\": 32\n}\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    if (std::strcmp(argv[1], "--json") != 0)
      return std::fprintf(stderr, "lab_fragments: unknown argument; allowed: --json\n"), 2;
    print_all_as_json();
    return 0;
  }
  Claims claims;
  print_fragments();
  check_product(claims);
  for (const int width : {64, 32, 96}) print_banks(claims, width);
  return claims.exit_code();
}
