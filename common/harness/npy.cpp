#include "common/harness/npy.hpp"

#include "common/machine/error.hpp"
#include "common/machine/host_memory.hpp"
#include "common/machine/isa/float16.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <regex>
#include <sstream>
#include <string_view>
#include <system_error>

namespace flash {
namespace {

static_assert(std::endian::native == std::endian::little, "values are copied between memory and little-endian files");

constexpr std::size_t chunk_bytes = std::size_t{1} << 20;

/// The open file, its size, and where reading stands.
class NpyFile {
 public:
  explicit NpyFile(const std::filesystem::path& file) : name_(file.string()) {
    std::error_code error;
    const auto status = std::filesystem::status(file, error);
    if (!std::filesystem::exists(status))
      fail(error && error != std::errc::no_such_file_or_directory ? error.message() : "no such file");
    if (!std::filesystem::is_regular_file(status)) fail("not a regular file");
    size_ = std::filesystem::file_size(file, error);
    if (error) fail(error.message());
    stream_.open(file, std::ios::binary);
    if (!stream_) fail("cannot be opened for reading");
  }

  [[noreturn]] void fail(const std::string& what) const { throw UsageError(name_ + ": " + what); }

  std::uint64_t remaining() const { return size_ - position_; }

  void read(void* to, std::size_t bytes, const char* what) {
    if (bytes > remaining()) fail(std::string("truncated within ") + what);
    if (!stream_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes))) fail("reading failed");
    position_ += bytes;
  }

 private:
  std::string name_;
  std::ifstream stream_;
  std::uint64_t size_ = 0, position_ = 0;
};

/// The dictionary in a header, for example {'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3, 4), }.
struct Header {
  std::string type;
  bool fortran_order;
  std::vector<std::int64_t> shape;
};

/// As NumPy writes it.
Header parse_header(const NpyFile& file, const std::string& text) {
  static const std::regex dictionary(
      R"(\{'descr': ?'(.*)', ?'fortran_order': ?(True|False), ?'shape': ?\(([0-9, ]*)\),? ?\}\s*)");
  std::smatch parts;
  if (!std::regex_match(text, parts, dictionary))
    file.fail("malformed header; allowed: {'descr': '...', 'fortran_order': ..., 'shape': (...), }");
  Header header{parts[1], parts[2] == "True", {}};
  std::istringstream shape(std::regex_replace(parts[3].str(), std::regex(","), " "));
  for (std::int64_t extent; shape >> extent;) header.shape.push_back(extent);
  if (!shape.eof()) file.fail("malformed header: its shape has something other than whole numbers below 2^63");
  return header;
}

Header read_header(NpyFile& file) {
  char start[10];  // magic, major version, minor version, length
  file.read(start, sizeof start, "the magic string");
  if (std::string_view(start, npy_magic.size()) != npy_magic) file.fail("not an .npy file (no magic string at its start)");
  if (start[6] != 1 || start[7] != 0)
    file.fail("format version " + std::to_string(start[6]) + "." + std::to_string(start[7]) + "; allowed: 1.0");
  std::uint16_t length;
  std::memcpy(&length, start + 8, sizeof length);
  std::string text(length, '\0');
  file.read(text.data(), text.size(), "the header");
  return parse_header(file, text);
}

std::size_t item_bytes(const NpyFile& file, const std::string& type) {
  if (type == "<f2") return 2;
  if (type == "<f4") return 4;
  if (type == "<f8") return 8;
  file.fail("type '" + type + "'; allowed: little-endian float16 '<f2', float32 '<f4', float64 '<f8'");
}

/// Elements of the array, once its data are known to be exactly the rest of the file.
std::size_t checked_count(const NpyFile& file, const std::vector<std::int64_t>& shape, std::size_t item) {
  std::uint64_t bytes = item;
  for (const std::int64_t extent : shape) {
    if (extent == 0) file.fail("shape " + shape_text(shape) + "; allowed: extents of at least 1");
    const auto factor = static_cast<std::uint64_t>(extent);
    if (bytes > std::numeric_limits<std::uint64_t>::max() / factor) {
      file.fail("shape " + shape_text(shape) + " has more bytes than 64 bits can count");
    }
    bytes *= factor;
  }
  if (bytes != file.remaining()) {
    file.fail(std::string(bytes > file.remaining() ? "truncated" : "trailing bytes") + ": shape " + shape_text(shape) +
              " needs " + std::to_string(bytes) + " bytes of data, the file has " + std::to_string(file.remaining()));
  }
  return bytes / item;
}

float decode(const char* bytes, std::size_t item) {
  if (item == 2) {
    std::uint16_t half;
    std::memcpy(&half, bytes, sizeof half);
    return half_to_float(half);
  }
  if (item == 4) {
    float single;
    std::memcpy(&single, bytes, sizeof single);
    return single;
  }
  double value;
  std::memcpy(&value, bytes, sizeof value);
  return static_cast<float>(value);
}

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

NpyArray read_npy(const std::filesystem::path& path, std::size_t rank) {
  NpyFile file(path);
  Header header = read_header(file);
  const std::size_t item = item_bytes(file, header.type);
  if (header.fortran_order) file.fail("Fortran order; allowed: C order (save numpy.ascontiguousarray(x))");
  if (header.shape.size() != rank) {
    file.fail("shape " + shape_text(header.shape) + " has " + std::to_string(header.shape.size()) +
              " axes; allowed: " + std::to_string(rank));
  }
  const std::size_t count = checked_count(file, header.shape, item);
  require_host_memory(static_cast<double>(count) * sizeof(float), "reading " + path.string());

  NpyArray array{std::move(header.shape), std::vector<float>(count)};
  std::vector<char> chunk(chunk_bytes);
  for (std::size_t done = 0; done < count;) {
    const std::size_t now = std::min(count - done, chunk_bytes / item);
    file.read(chunk.data(), now * item, "the data");
    for (std::size_t i = 0; i < now; ++i) array.values[done + i] = decode(chunk.data() + i * item, item);
    done += now;
  }
  return array;
}

std::vector<std::int64_t> read_npy_integers(const std::filesystem::path& path) {
  NpyFile file(path);
  const Header header = read_header(file);
  if (header.type != "<i4" && header.type != "<i8")
    file.fail("type '" + header.type + "'; allowed: little-endian int32 '<i4', int64 '<i8'");
  if (header.shape.size() != 1) file.fail("shape " + shape_text(header.shape) + "; allowed: one axis");
  const std::size_t item = header.type == "<i4" ? 4 : 8, count = checked_count(file, header.shape, item);
  require_host_memory(static_cast<double>(count) * 8, "reading " + path.string());
  std::vector<std::int64_t> values(count);
  for (std::int64_t& value : values) {
    std::int32_t narrow = 0;
    file.read(item == 4 ? static_cast<void*>(&narrow) : &value, item, "the data");
    if (item == 4) value = narrow;
  }
  return values;
}

void write_npy(const std::filesystem::path& file, const std::vector<std::int64_t>& shape, const std::vector<float>& values) {
  std::string dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape_text(shape) + ", }";
  constexpr std::size_t before = 10;  // magic, version, length
  // The data start at a multiple of 64 bytes, so that they can be mapped; the header ends with a newline.
  dictionary.append(63 - (before + dictionary.size()) % 64, ' ');
  dictionary += '\n';

  std::string header(npy_magic);
  header += {'\1', '\0', static_cast<char>(dictionary.size() & 0xff), static_cast<char>(dictionary.size() >> 8)};
  std::ofstream stream(file, std::ios::binary);
  const bool opened = stream.is_open();
  stream << header << dictionary;
  stream.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
  stream.close();
  if (stream) return;
  const std::string why = std::strerror(errno);
  std::error_code ignored;
  if (opened) std::filesystem::remove(file, ignored);
  throw UsageError(file.string() + " cannot be written: " + why);
}

}  // namespace flash
