// NumPy's .npy files, version 1.0: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace flash {

/// The first bytes of every such file.
constexpr std::string_view npy_magic{"\x93NUMPY", 6};

template <class T>
struct NpyArray {
  std::vector<std::int64_t> shape;
  std::vector<T> values;
};

/// Reads a C-ordered array with `rank` axes, none of them empty. T float: of float16, float32 or float64, which is rounded; std::int64_t: of int32
/// or int64. All little-endian. UsageError with the file's name for anything else; DeviceError if memory is too small.
template <class T>
NpyArray<T> read_npy(const std::filesystem::path& file, std::size_t rank);

/// Writes float32 in C order. If that fails, it leaves no file and throws UsageError.
void write_npy(const std::filesystem::path& file, const std::vector<std::int64_t>& shape, const std::vector<float>& values);

/// "(2, 3, 4)", as NumPy writes a shape.
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace flash
