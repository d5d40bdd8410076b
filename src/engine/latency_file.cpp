#include "engine/latency_file.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/cache_directory.h"
#include "base/hash.h"
#include "base/output_file.h"
#include "base/try.h"
#include "format/mapped_file.h"
#include "format/strict_json.h"

namespace dllm {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kFormat = 1;

Json json_of(const LatencyKey& key) {
  return {{"model", key.model},
          {"model_size", key.model_size},
          {"model_stamp", key.model_stamp},
          {"cpu", key.cpu},
          {"isa", key.isa},
          {"kv_type", key.kv_type},
          {"activations", key.activations},
          {"arithmetic", key.arithmetic},
          {"threads", key.threads},
          {"version", key.version}};
}

/// Paths need not be UTF-8; invalid bytes are replaced, because the JSON library would throw.
std::string text_of(const Json& json, int indent) {
  return json.dump(indent, ' ', true, Json::error_handler_t::replace);
}

std::string file_name(const LatencyKey& key) {
  return fmt::format("latency-{:016x}.json", Fnv1a().add(text_of(json_of(key), -1)).value());
}

/// Of what the program measured; a cached file without it, or with another, is not used.
std::string checksum_text(const Json& points, const Json& per_pair) {
  return fmt::format("{:016x}", Fnv1a().add(text_of(points, -1)).add("|").add(text_of(per_pair, -1)).value());
}

/// The points of a well-formed file; nullopt for anything else.
std::optional<LatencyTable> table_of(const Json& json) {
  constexpr double kMostMs = 1e12;
  const auto duration = [](const Json& value) {
    return value.is_number() && value.get<double>() >= 0 && value.get<double>() <= kMostMs;
  };
  const auto points = json.find("points"), pair = json.find("ms_per_pair");
  if (points == json.end() || !points->is_array() || points->empty() || pair == json.end() || !duration(*pair))
    return std::nullopt;
  std::vector<LatencyTable::Point> result;
  for (const Json& point : *points) {
    if (!point.is_array() || point.size() != 2 || !point[0].is_number_unsigned() || !duration(point[1]))
      return std::nullopt;
    const auto rows = point[0].get<std::uint64_t>();
    if (rows < 1 || rows > (1u << 20) || (!result.empty() && static_cast<std::int32_t>(rows) <= result.back().rows))
      return std::nullopt;
    result.push_back({static_cast<std::int32_t>(rows), point[1].get<double>()});
  }
  return LatencyTable(std::move(result), pair->get<double>());
}

std::optional<LatencyTable> read(const std::string& path, const LatencyKey& key) {
  const auto file = MappedFile::open(path);
  if (!file) return std::nullopt;
  const auto json = parse_strict_json((*file)->bytes(), path);
  if (!json || !json->is_object() || json->value("format", Json()) != kFormat ||
      text_of(json->value("key", Json()), -1) != text_of(json_of(key), -1) ||
      json->value("checksum", Json()) !=
          checksum_text(json->value("points", Json()), json->value("ms_per_pair", Json())))
    return std::nullopt;
  return table_of(*json);
}

Expected<void> write(const fs::path& path, const LatencyKey& key, const LatencyTable& table) {
  std::error_code failure;
  fs::create_directories(path.parent_path(), failure);
  Json points = Json::array();
  for (const LatencyTable::Point& point : table.points()) points.push_back({point.rows, point.ms});
  const Json json = {{"format", kFormat},
                     {"key", json_of(key)},
                     {"points", points},
                     {"ms_per_pair", table.ms_per_pair()},
                     {"checksum", checksum_text(points, table.ms_per_pair())}};
  return write_file(path.string(), text_of(json, 1) + "\n");
}

}  // namespace

LatencyTable nominal_latency() { return {{{1, 5}, {2, 6}}, 0}; }

Expected<LatencyTable> read_latency_file(const std::string& path) {
  DLLM_TRY(const auto file, MappedFile::open(path));
  DLLM_TRY(const auto json, parse_strict_json(file->bytes(), path));
  std::optional<LatencyTable> table;
  if (json.is_object() && json.value("format", Json()) == kFormat) table = table_of(json);
  if (!table)
    return Error{ErrorCode::kInvalidFile, "not a latency table", path,
                 "`dllm bench latency` measures one and prints where it is stored"};
  return *std::move(table);
}

Expected<LatencyResult> latency_table(Backend& backend, const LatencyKey& key, const std::string& directory, bool renew,
                                      const LatencyOptions& options, const Log& log) {
  const std::string path = directory.empty() ? std::string() : (fs::path(directory) / file_name(key)).string();
  if (!path.empty() && !renew)
    if (auto known = read(path, key)) return LatencyResult{*std::move(known), path, false};
  DLLM_TRY(LatencyTable table, measure_latency(backend, options));
  if (!path.empty())
    if (const auto kept = write(path, key, table); !kept)
      log.warning("cannot keep the latency table: {}", kept.error().message());
  return LatencyResult{std::move(table), path, true};
}

Expected<LatencyTable> requested_latency(const std::string& name, Backend& backend, const LatencyKey& key,
                                         const Log& log, std::stop_token stop) {
  if (name == "nominal") return nominal_latency();
  if (name != "auto") return read_latency_file(name);
  LatencyOptions measurement;
  measurement.stop = std::move(stop);
  DLLM_TRY(LatencyResult result, latency_table(backend, key, cache_directory(), /*renew=*/false, measurement, log));
  return std::move(result.table);
}

}  // namespace dllm
