#include "common/harness/npy.hpp"

#include "common/machine/error.hpp"
#include "common/machine/host_memory.hpp"
#include "common/machine/isa/float16.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <regex>
#include <sstream>

namespace flash {
namespace {

static_assert(std::endian::native == std::endian::little, "values are copied between memory and little-endian files");

constexpr std::size_t before_header = npy_magic.size() + 4;  // the magic string, a version, a length

/// The types that a file's numbers may have, as NumPy calls them; their last digit is their size in bytes.
template <class T>
constexpr std::array<std::string_view, 3> allowed_types{"<f2", "<f4", "<f8"};
template <>
constexpr std::array<std::string_view, 2> allowed_types<std::int64_t>{"<i4", "<i8"};

/// A float16 in a file.
struct Half {
  std::uint16_t bits;
  operator float() const { return half_to_float(bits); }
};

template <class From, class To>
void read_as(std::istream& stream, std::vector<To>& values) {
  for (To& value : values) {
    From from{};
    stream.read(reinterpret_cast<char*>(&from), sizeof from);
    value = static_cast<To>(from);
  }
}

template <class To>
void read_values(std::istream& stream, const std::string& type, std::vector<To>& values) {
  if (type == "<f2") read_as<Half>(stream, values);
  if (type == "<f4") read_as<float>(stream, values);
  if (type == "<f8") read_as<double>(stream, values);
  if (type == "<i4") read_as<std::int32_t>(stream, values);
  if (type == "<i8") read_as<std::int64_t>(stream, values);
}

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

template <class T>
NpyArray<T> read_npy(const std::filesystem::path& path, std::size_t rank) {
  const auto require = [&](bool holds, const std::string& what) {
    if (!holds) throw UsageError(path.string() + ": " + what);
  };
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  require(std::filesystem::exists(status), "no such file");
  require(std::filesystem::is_regular_file(status), "not a regular file");
  std::ifstream stream(path, std::ios::binary);
  char start[before_header]{};
  stream.read(start, sizeof start);
  require(stream && std::string_view(start, npy_magic.size()) == npy_magic, "not an .npy file, or not to be read");
  require(start[6] == 1 && start[7] == 0, "format version " + std::to_string(start[6]) + "; allowed: 1.0");
  std::uint16_t length;
  std::memcpy(&length, start + 8, sizeof length);
  std::string header(length, '\0');
  require(bool(stream.read(header.data(), length)), "truncated within the header");

  static const std::regex as_numpy_writes_it(
      R"(\{'descr': ?'(.*)', ?'fortran_order': ?(True|False), ?'shape': ?\(([0-9, ]*)\),? ?\}\s*)");
  std::smatch parts;
  require(std::regex_match(header, parts, as_numpy_writes_it),
          "malformed header; allowed: {'descr': '...', 'fortran_order': ..., 'shape': (...), }");
  const std::string type = parts[1];
  const auto& types = allowed_types<T>;
  require(std::find(types.begin(), types.end(), type) != types.end(),
          "type '" + type + "'; allowed: little-endian, " + std::string(types.front()) + " to " + std::string(types.back()));
  require(parts[2] == "False", "Fortran order; allowed: C order (save numpy.ascontiguousarray(x))");

  NpyArray<T> array;
  std::istringstream extents(std::regex_replace(parts[3].str(), std::regex(","), " "));
  const std::uint64_t data = std::filesystem::file_size(path, error) - before_header - length;
  const auto bytes = static_cast<std::size_t>(type.back() - '0');
  std::uint64_t count = data / bytes;
  for (std::int64_t extent; extents >> extent;) {
    array.shape.push_back(extent);
    // Divided instead of multiplied, it cannot overflow.
    const auto factor = static_cast<std::uint64_t>(extent);
    count = factor == 0 || count % factor != 0 ? 0 : count / factor;
  }
  require(extents.eof() && array.shape.size() == rank,
          "shape (" + parts[3].str() + "); allowed: " + std::to_string(rank) + " axes of less than 2^63");
  require(count == 1 && data % bytes == 0, "shape " + shape_text(array.shape) + " does not go with " + std::to_string(data) +
                                               " bytes of data: truncated, or more than that");
  require_host_memory(static_cast<double>(data / bytes) * sizeof(T), "reading " + path.string());
  array.values.resize(data / bytes);
  read_values(stream, type, array.values);
  require(bool(stream), "reading failed");
  return array;
}
template NpyArray<float> read_npy(const std::filesystem::path&, std::size_t);
template NpyArray<std::int64_t> read_npy(const std::filesystem::path&, std::size_t);

void write_npy(const std::filesystem::path& file, const std::vector<std::int64_t>& shape, const std::vector<float>& values) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape_text(shape) + ", }";
  header.append(63 - (before_header + header.size()) % 64, ' ');  // the data start at a multiple of 64 bytes
  header += '\n';
  std::ofstream stream(file, std::ios::binary);
  const bool opened = stream.is_open();
  stream << npy_magic << '\1' << '\0' << static_cast<char>(header.size() & 0xff) << static_cast<char>(header.size() >> 8)
         << header;
  stream.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
  stream.close();
  if (stream) return;
  const std::string why = std::strerror(errno);
  std::error_code ignored;
  if (opened) std::filesystem::remove(file, ignored);
  throw UsageError(file.string() + " cannot be written: " + why);
}

}  // namespace flash
