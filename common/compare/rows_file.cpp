#include "common/compare/rows_file.hpp"

#include "common/base/error.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

namespace flash {

std::vector<Row> read_rows(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return {};
  if (!std::filesystem::is_regular_file(file, error)) throw UsageError(file + " is not a regular file");
  std::ifstream stream(file);
  if (!stream) throw UsageError(file + " cannot be read");
  std::vector<Row> rows;
  std::map<std::string, std::size_t> places;
  std::size_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    try {
      if (stream.eof()) throw UsageError("it has no end");
      Row row = row_from_json(Json::parse(line, nullptr, /*allow_exceptions=*/false));
      const auto [place, is_new] = places.try_emplace(row.key(), rows.size());
      if (is_new) rows.emplace_back();
      rows[place->second] = std::move(row);
    } catch (const std::exception& wrong) {
      throw UsageError(file + ":" + std::to_string(number) + ": " + wrong.what() + "; allowed: rows that compare --save wrote");
    }
  }
  return rows;
}

void append(const std::string& file, const std::string& lines) {
  std::ofstream stream(file, std::ios::app);
  stream << lines << std::flush;
  if (!stream) throw UsageError(file + " cannot be written: " + std::strerror(errno));
}

}  // namespace flash
