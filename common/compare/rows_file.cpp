#include "common/compare/rows_file.hpp"

#include "common/base/error.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <string_view>

namespace flash {
namespace {

constexpr std::string_view row_begin = "{\"stage\":";

struct Contents {
  std::vector<Row> rows;
  std::size_t length = 0;     ///< without an unfinished line
  bool line_is_open = false;  ///< the last row has no newline
};

Contents contents_of(const std::string& file) {
  if (std::error_code error; !std::filesystem::is_regular_file(file, error)) {
    throw UsageError(file + (std::filesystem::exists(file, error) ? " is not a regular file" : " does not exist") +
                     "; allowed: a file of saved rows");
  }
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (!stream) throw UsageError(file + " cannot be read");
  Contents found;
  std::map<std::string, std::size_t> places;
  for (std::size_t start = 0, number = 1; start < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string line = text.substr(start, end - start);
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    found.line_is_open = end == text.size();
    if (json.is_discarded() && found.line_is_open && (line.starts_with(row_begin) || row_begin.starts_with(line))) {
      found.line_is_open = false;
      return found;
    }
    try {
      Row row = row_from_json(json);
      const auto [place, is_new] = places.try_emplace(row.key(), found.rows.size());
      if (is_new) found.rows.emplace_back();
      found.rows[place->second] = std::move(row);
    } catch (const std::exception& wrong) {
      throw UsageError(file + ":" + std::to_string(number) + ": " + wrong.what() + "; allowed: rows that compare --save wrote");
    }
    start = found.length = std::min(end + 1, text.size());
  }
  return found;
}

}  // namespace

std::vector<Row> read_rows(const std::string& file) { return contents_of(file).rows; }

RowsFile::RowsFile(const std::string& file) : name_(file) {
  Contents found;
  std::error_code error;
  if (std::filesystem::exists(file, error)) {
    found = contents_of(file);
    std::filesystem::resize_file(file, found.length, error);
  }
  rows_ = std::move(found.rows);
  stream_.open(file, std::ios::app | std::ios::binary);
  if (found.line_is_open) stream_ << '\n';
  check();
}

void RowsFile::append(const Row& row) {
  stream_ << json_line(row) << std::flush;
  check();
}

void RowsFile::check() const {
  if (!stream_) throw UsageError(name_ + " cannot be written: " + std::strerror(errno));
}

}  // namespace flash
