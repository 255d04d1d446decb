// Reports as JSON. The text reports are made from it. Internal to the harness.
#pragma once

#include "common/harness/report.hpp"
#include "common/harness/text_table.hpp"

#include <nlohmann/json.hpp>

namespace flash::report {

using Json = nlohmann::ordered_json;  // keys in the order of the report

/// Numbers that are not finite are still themselves in it; printed they become null.
Json to_json(const RunRecord&);
Json to_json(const TuneRecord&);
Json to_json(const StageInfo&, const std::vector<Variant>&, const TilesToList&);

/// Bytes that are not UTF-8 (folder names may have them) are replaced.
inline std::string printed(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

/// Text as it is, anything else as JSON has it.
inline std::string word(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

/// "64,32", as --tiles takes it.
inline std::string tiles_word(const Json& tiles) { return word(tiles.at("br")) + "," + word(tiles.at("bc")); }

/// A title, and the place of its cell in a row: "/time/median_ms". A row without it shows "-".
struct Column {
  const char *title, *place;
  int digits = 3;
};

/// Its lines, each after `indent` spaces; the first column to the left, the others to the right, as far as `align` is silent.
std::string table_text(std::size_t indent, const std::vector<Column>&, const std::vector<Json>& rows,
                       std::vector<TextTable::Align> align = {});

/// "  label        text\n"; a long text goes on below itself.
std::string line(const char* label, const std::string& text);

/// "NVIDIA H100 80GB HBM3, sm_90, CUDA 13.0, driver 1.2".
std::string device_text(const Json& device);

/// Pass, problem, input and device, a line each.
std::string heading_text(const Heading&, const Json&);

/// The place where a tensor is wrong most. Elements that are not finite are described in words: they are no result.
std::string worst_text(const std::string& tensor, const Json& check);

}  // namespace flash::report
