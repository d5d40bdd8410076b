#include "npu_core/timing/memo.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/hash.h"
#include "base/input_file.h"
#include "base/json_reader.h"
#include "base/output_file.h"
#include "base/try.h"
#include "npu_core/device/profile.h"

namespace dllm::npu {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = std::size_t{64} << 20;
constexpr int kDeepest = 16;  ///< nesting depth; a report has 6

/// Part of every key. Increment it when the same program would take another time.
constexpr int kModelVersion = 2;

struct Hash {
  // Two hashes with different seeds: 128 bits, for identification, not against adversaries.
  std::uint64_t a = Fnv1a::kBasis, b = kGolden64;

  void add(std::uint64_t value) {
    a = mix64(a, value);
    b = mix64(b, value + kGolden64);
  }
  void add(std::string_view text) {
    add(text.size());
    for (const char c : text) add(static_cast<std::uint64_t>(static_cast<unsigned char>(c)));
  }
  std::string text() const { return fmt::format("{:016x}{:016x}", a, b); }
};

std::string checksum(std::string_view text) {
  Hash hash;
  hash.add(text);
  return hash.text();
}

bool whole(const nlohmann::ordered_json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_number_integer() &&
         object[key].get<std::int64_t>() >= 0;
}

/// Checks that every engine's cycles add up to the total, as do those of the regions, and that there are no more
/// instructions than the front end can have dispatched. Missing members or wrong types also make a report implausible.
bool plausible(const nlohmann::ordered_json& report, const TimingOptions& options) {
  if (!whole(report, "total_cycles") || !whole(report, "instructions") || !report.contains("engines") ||
      !report.contains("regions") || !report.contains("simulation") || !report.contains("config"))
    return false;
  const auto total = report["total_cycles"].get<std::int64_t>();
  const nlohmann::ordered_json& engines = report["engines"];
  if (!engines.is_object() || engines.size() != kEngines) return false;
  for (std::size_t e = 0; e < kEngines; ++e) {
    const std::string name(name_of(static_cast<Engine>(e)));
    if (!engines.contains(name)) return false;
    const nlohmann::ordered_json& engine = engines[name];
    if (!whole(engine, "busy_cycles") || !engine.contains("busy_share") || !engine["busy_share"].is_number() ||
        !engine.contains("stall_cycles") || !engine["stall_cycles"].is_object())
      return false;
    auto sum = engine["busy_cycles"].get<std::int64_t>();
    for (const auto& [cause, cycles] : engine["stall_cycles"].items()) {
      if (!cycles.is_number_integer()) return false;
      sum += cycles.get<std::int64_t>();
    }
    if (sum != total) return false;
  }
  std::int64_t regions = 0;
  if (!report["regions"].is_array()) return false;
  for (const nlohmann::ordered_json& region : report["regions"]) {
    if (!whole(region, "cycles")) return false;
    regions += region["cycles"].get<std::int64_t>();
  }
  const std::int64_t width = options.issue == IssueMode::kSerial ? 1 : options.width;
  const bool simulated = whole(report["simulation"], "instructions_repeated");
  // Hardware loops are free under serial issue, so only overlapped issue limits the number of instructions.
  const bool dispatched =
      options.issue == IssueMode::kSerial || report["instructions"].get<std::int64_t>() <= (total + 1) * width;
  return regions == total && simulated && dispatched && total > 0;
}

/// The report in a file, or why it is not used.
struct Kept {
  std::optional<nlohmann::ordered_json> report;
  std::string doubt;  ///< "": there is no such file
};
Kept read_kept(const fs::path& path, const std::string& key, const TimingOptions& options) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(path, ignored))) return {};
  const auto text = read_input(path.string(), kMostBytes);
  if (!text) return {{}, text.error().message()};
  auto report = parse_kept_report(*text, key, options);
  if (!report) return {{}, report.error().what};
  return {*std::move(report), ""};
}

}  // namespace

Expected<nlohmann::ordered_json> parse_kept_report(std::string_view text, const std::string& key,
                                                   const TimingOptions& options) {
  const auto damaged = [](const char* why) { return Error{ErrorCode::kInvalidFile, why, "", ""}; };
  JsonRules rules;
  rules.depth = kDeepest;
  rules.bytes = kMostBytes;
  DLLM_TRY(const auto file, read_json<nlohmann::ordered_json>(text, rules));
  for (const char* name : {"key", "checksum"})
    if (!file.is_object() || !file.contains(name) || !file[name].is_string())
      return damaged("it is not a cached report");
  if (!whole(file, "version") || file["version"] != kModelVersion) return damaged("it is of another version");
  if (file["key"] != key || !file.contains("report")) return damaged("it belongs to another program");
  if (file["checksum"] != checksum(file["report"].dump())) return damaged("its checksum is wrong");
  if (!plausible(file["report"], options)) return damaged("its figures cannot be those of a run");
  return file["report"];
}

std::string kept_report_text(const std::string& key, const nlohmann::ordered_json& report) {
  const nlohmann::ordered_json file = {
      {"key", key}, {"version", kModelVersion}, {"checksum", checksum(report.dump())}, {"report", report}};
  return file.dump();
}

std::string timing_key(const Device& device, const MachineConfig& machine, const Program& program,
                       const TimingOptions& options) {
  Hash hash;
  hash.add(static_cast<std::uint64_t>(kModelVersion));
  hash.add(device_json(device).dump());
  hash.add(machine_json(machine).dump());
  hash.add(timing_options_json(options).dump());
  for (const std::uint32_t word : program.words) hash.add(std::uint64_t{word});
  for (const Region& region : program.regions) {
    hash.add(region.name);
    hash.add(std::uint64_t{region.begin} << 32 | region.end);
  }
  if (const ProgramChoices& choices = program.choices; !choices.sites.empty()) {
    hash.add(std::uint64_t{choices.assumption.balanced});
    hash.add(choices.assumption.seed);
    hash.add(std::uint64_t{choices.assumption.lanes});
  }
  return hash.text();
}

Expected<MemoisedTiming> memoised_timing(const Device& device, const MachineConfig& machine, const Program& program,
                                         const TimingOptions& options, const std::string& directory) {
  const std::string key = directory.empty() ? "" : timing_key(device, machine, program, options);
  const fs::path path = fs::path(directory) / (key + ".json");
  std::string doubt;
  if (!key.empty()) {
    Kept kept = read_kept(path, key, options);
    if (kept.report) {
      const auto total = (*kept.report)["total_cycles"].get<Cycle>();
      return MemoisedTiming{total, *std::move(kept.report), true, ""};
    }
    if (!kept.doubt.empty()) doubt = fmt::format("{} is not used: {}", path.string(), kept.doubt);
  }
  DLLM_TRY(const TimingReport report, simulate(device, machine, program, options));
  MemoisedTiming result{report.total, timing_json(report, device, machine, options), false, std::move(doubt)};
  if (!key.empty()) {
    std::error_code ignored;
    fs::create_directories(directory, ignored);
    if (const auto kept = write_file(path.string(), kept_report_text(key, result.report));
        !kept && result.doubt.empty())
      result.doubt = fmt::format("the report is not cached: {}", kept.error().message());
  }
  return result;
}

}  // namespace dllm::npu
