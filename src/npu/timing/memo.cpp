#include "npu/timing/memo.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/try.h"

namespace dllm::npu {
namespace {

namespace fs = std::filesystem;

/// Part of every key. Raise it when the same program would take another time.
constexpr int kModelVersion = 1;

struct Hash {
  // Two FNV-1a with different beginnings: 128 bits, for identity rather than against adversaries.
  std::uint64_t a = 0xcbf29ce484222325u, b = 0x9ae16a3b2f90404fu;

  void add(std::uint64_t value) {
    a = (a ^ value) * 0x100000001b3u;
    b = (b ^ (value + 0x9e3779b97f4a7c15u)) * 0x100000001b3u;
    a ^= a >> 29;
    b ^= b >> 31;
  }
  void add(std::string_view text) {
    add(text.size());
    for (const char c : text) add(static_cast<std::uint64_t>(static_cast<unsigned char>(c)));
  }
};

}  // namespace

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
  return fmt::format("{:016x}{:016x}", hash.a, hash.b);
}

Expected<MemoisedTiming> memoised_timing(const Device& device, const MachineConfig& machine, const Program& program,
                                         const TimingOptions& options, const std::string& directory) {
  const std::string key = directory.empty() ? "" : timing_key(device, machine, program, options);
  const fs::path path = fs::path(directory) / (key + ".json");
  if (!key.empty()) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const auto kept = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (kept.is_object() && kept.contains("key") && kept["key"] == key && kept.contains("report") &&
        kept["report"].is_object() && kept["report"].contains("total_cycles") &&
        kept["report"]["total_cycles"].is_number_integer())
      return MemoisedTiming{kept["report"]["total_cycles"].get<Cycle>(), kept["report"], true};
  }
  DLLM_TRY(const TimingReport report, simulate(device, machine, program, options));
  MemoisedTiming result{report.total, timing_json(report, device, machine, options), false};
  if (!key.empty()) {
    std::error_code ignored;
    fs::create_directories(directory, ignored);
    // Written beside and renamed: readers see a whole file or none.
    const fs::path part = path.string() + ".part";
    std::ofstream file(part, std::ios::binary);
    file << nlohmann::ordered_json{{"key", key}, {"report", result.report}}.dump();
    file.close();
    if (file) fs::rename(part, path, ignored);
  }
  return result;
}

}  // namespace dllm::npu
