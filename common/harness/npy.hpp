// NumPy's .npy files: a reader and a writer.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html (version 1.0).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace flash {

/// The first bytes of every such file.
constexpr std::string_view npy_magic{"\x93NUMPY", 6};

struct NpyArray {
  std::vector<std::int64_t> shape;
  std::vector<float> values;  ///< float64 rounded to the nearest float; may hold infinities and NaN
};

/// Reads an array of little-endian float16, float32 or float64 in C order with `rank` axes, none of them empty.
/// UsageError with the file's name for anything else: another type, order or rank, a header that NumPy does not write, a size that does not
/// match the shape, a file that is not regular or cannot be read; DeviceError if memory is too small.
NpyArray read_npy(const std::filesystem::path& file, std::size_t rank);

/// Reads an array of little-endian int32 or int64 with one axis. UsageError likewise.
std::vector<std::int64_t> read_npy_integers(const std::filesystem::path& file);

/// Writes float32, C order, version 1.0. If that fails, it leaves no file and throws UsageError.
void write_npy(const std::filesystem::path& file, const std::vector<std::int64_t>& shape, const std::vector<float>& values);

/// "(2, 3, 4)", as NumPy writes a shape.
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace flash
