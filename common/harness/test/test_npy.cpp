// The .npy reader takes what NumPy writes and refuses everything else with a message of its own.
#include "common/harness/npy.hpp"
#include "common/harness/test/temporary_folder.hpp"
#include "common/machine/error.hpp"

#include <doctest/doctest.h>

#include <limits>

namespace {

using flash::NpyArray;
using flash::read_npy;
using flash::test::data;
using flash::test::dictionary;
using flash::test::npy_header;
using flash::test::TemporaryFolder;
using flash::test::write_bytes;

const std::vector<float> six{1, 2, 3, -4, 0.5f, 6};
const std::string six_floats = data(six);

/// The message of the UsageError that reading the file gives; "" if it gives none.
std::string refusal(const std::filesystem::path& file, std::size_t rank = 2) {
  try {
    read_npy(file, rank);
    return "";
  } catch (const flash::UsageError& error) {
    return error.what();
  }
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

// Files that NumPy writes are read by test_numpy.py, which also reads what is written.
TEST_CASE("npy: values at the edge of fp32 survive, a double beyond it becomes infinite") {
  const TemporaryFolder folder;
  const auto file = folder.path() / "x.npy";
  write_bytes(file, npy_header(dictionary("<f8", "(3,)")) + data(std::vector<double>{1e300, 3.4028234663852886e38, 1e-46}));
  const NpyArray array = read_npy(file, 1);
  CHECK(array.values[0] == std::numeric_limits<float>::infinity());
  CHECK(array.values[1] == std::numeric_limits<float>::max());
  CHECK(array.values[2] == 0);
}

TEST_CASE("npy: malformed files are refused, each with its reason") {
  struct Case {
    const char* name;
    std::string bytes;
    const char* reason;
  };
  const std::string good = dictionary("<f4", "(2, 3)");
  constexpr const char* malformed = "malformed header; allowed";
  const std::vector<Case> cases{
      {"empty file", "", "truncated within the magic string"},
      {"no magic", "not a NumPy file at all", "no magic string"},
      {"version 2", npy_header(good, 2) + six_floats, "format version 2.0; allowed: 1.0"},
      {"ends in the header", npy_header(good).substr(0, 40), "truncated within the header"},
      {"truncated data", npy_header(good) + six_floats.substr(1), "truncated: shape (2, 3) needs 24 bytes"},
      {"trailing bytes", npy_header(good) + six_floats + "x", "trailing bytes"},
      {"Fortran order", npy_header(dictionary("<f4", "(2, 3)", "True")) + six_floats, "Fortran order"},
      {"big endian", npy_header(dictionary(">f4", "(2, 3)")) + six_floats, "type '>f4'"},
      {"structured type", npy_header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3)}") + six_floats,
       malformed},
      {"rank 1", npy_header(dictionary("<f4", "(6,)")) + six_floats, "has 1 axes; allowed: 2"},
      {"rank 0", npy_header(dictionary("<f4", "()")) + six_floats.substr(20), "has 0 axes; allowed: 2"},
      {"empty axis", npy_header(dictionary("<f4", "(0, 3)")), "extents of at least 1"},
      {"overflowing shape", npy_header(dictionary("<f4", "(4294967296, 4294967296)")) + six_floats, "more bytes than 64 bits"},
      {"extent of 2^63", npy_header(dictionary("<f4", "(9223372036854775808, 1)")) + six_floats, "whole numbers below 2^63"},
      {"expression", npy_header("__import__('os').system('true')") + six_floats, malformed},
  };
  const TemporaryFolder folder;
  const auto file = folder.path() / "x.npy";
  for (const Case& c : cases) {
    CAPTURE(c.name);
    write_bytes(file, c.bytes);
    const std::string message = refusal(file);
    CHECK_MESSAGE(contains(message, c.reason), message);
    CHECK(message.starts_with(file.string()));
    CHECK_FALSE(contains(message, "\n"));
  }
}

TEST_CASE("npy: what is not a regular file is refused") {
  const TemporaryFolder folder;
  CHECK(contains(refusal(folder.path() / "absent.npy"), "no such file"));
  CHECK(contains(refusal(folder.path()), "not a regular file"));
  CHECK(contains(refusal("/dev/zero"), "not a regular file"));
  std::filesystem::create_symlink(folder.path() / "absent.npy", folder.path() / "link.npy");
  CHECK(contains(refusal(folder.path() / "link.npy"), "no such file"));
}

TEST_CASE("npy: what is written reads back, and its data begin at a multiple of 64 bytes") {
  const TemporaryFolder folder;
  const auto file = folder.path() / "x.npy";
  flash::write_npy(file, {6}, six);
  CHECK(read_npy(file, 1).values == six);
  CHECK((std::filesystem::file_size(file) - six_floats.size()) % 64 == 0);
  CHECK_THROWS_AS(flash::write_npy(folder.path() / "no" / "x.npy", {6}, six), flash::UsageError);
}
