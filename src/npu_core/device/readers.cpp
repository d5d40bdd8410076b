#include "npu_core/device/readers.h"

#include <algorithm>
#include <cassert>
#include <optional>

namespace dllm::npu {

using namespace reads;

std::span<const ReaderInfo> reader_infos() {
  static constexpr ReaderInfo kInfos[] = {
      {kChecks, "checks", "whether the profile is possible at all, which every verb checks"},
      {kMachine, "machine", "sizes and formats of the functional machine"},
      {kLayout, "layout", "where a model's tensors are placed, and in how many parts a step fits"},
      {kProgram, "program", "what else decides the instructions of a compiled step"},
      {kListing, "listing", "the bounds in the listing of a program"},
      {kSimulator, "simulator", "time, cycle by cycle"},
      {kDraws, "draws", "draws on the chip (`--temperature`)"},
      {kCost, "cost", "the analytical model of time, per operator"},
      {kDispatch, "dispatch", "what it adds for the host: submitting operators, mapping weights"},
      {kSchedule, "schedule", "the analytical schedule of a step, and its time without overlap"},
      {kLogits, "logits", "logits in memory, where the head is not fused with what reads them, and sampling"},
      {kEnergy, "energy", "energy"},
      {kArea, "area", "silicon"},
      {kMemory, "memory", "DRAM alone"},
      {kWindow, "window", "placing and staging in the window of addresses"},
      {kHost, "host", "the host's processor"},
      {kHeat, "heat", "heat, and the lowered clock"},
      {kValues, "values", "answers in the device's formats"},
  };
  return kInfos;
}

std::span<const DeviceVerb> device_verbs() {
  constexpr Readers kTimed = kMachine | kSimulator | kEnergy | kArea;
  constexpr Readers kStep = kLayout | kCost | kDispatch | kSchedule | kWindow;
  constexpr Readers kBlocks = kStep | kEnergy | kArea;
  constexpr Readers kAnswers = kCost | kDispatch | kLogits | kEnergy | kWindow | kHost;
  constexpr bool kOption = true;
  // Compiled steps set the lengths of their transfers.
  constexpr std::string_view kNotInSteps = "prefetch.matrix_rows prefetch.vector_rows prefetch.writeback_rows";
  // The price by which mappings are compared knows one front end, but for its queue, and no time without overlap.
  constexpr std::string_view kNotInPrices =
      "issue.width issue.vector_starts issue.chaining issue.accumulators latency.shift";
  // And networks have no draws.
  constexpr std::string_view kNotInNetworks =
      "prefetch.matrix_rows prefetch.vector_rows prefetch.writeback_rows latency.vector_draw";
  static constexpr DeviceVerb kVerbs[] = {
      {"npu run", kMachine},
      {"npu run --timing", kTimed | kDraws},
      {"npu trace", kTimed | kDraws},
      {"npu compile", kMachine | kLayout | kProgram | kLogits | kListing, kNotInSteps},
      {"npu compile --mapping search", kCost | kSchedule, kNotInPrices, kOption},
      {"npu step", kTimed | kLayout | kProgram | kLogits, kNotInSteps},
      {"npu step --temperature", kDraws, {}, kOption},
      {"npu step --analytic", kCost | kSchedule, {}, kOption},
      {"npu network", kTimed | kLayout | kProgram | kValues, kNotInNetworks},
      {"npu network --analytic", kCost | kSchedule, {}, kOption},
      {"npu network --plan", kCost | kWindow, {}, kOption},
      // No products, and nothing is written.
      {"npu sampling", kTimed | kLogits,
       "prefetch.matrix_rows prefetch.writeback_rows energy.mac_pj energy.dram_write_pj_per_byte"},
      {"npu sampling --temperature", kDraws, {}, kOption},
      {"npu dram", kMemory},
      {"npu analyze", kBlocks},
      {"npu analyze --unfused-head", kLogits, {}, kOption},
      {"npu sweep", kBlocks},
      {"npu plan", kStep},
      {"npu plan --program", kWindow},
      {"npu calibrate", kAnswers, "numerics.smooth_keys numerics.smooth_values"},
      {"bench --backend npu", kAnswers | kHeat},
      {"bench --backend npu --npu-timing simulated", kSimulator | kLayout, kNotInSteps, kOption},
      {"bench --backend npu --npu-processor host", kHost | kHeat,
       "host.cores host.shared_gbps numerics.smooth_keys numerics.smooth_values"},
      {"run --backend npu", kAnswers | kHeat | kValues},
      {"run --backend npu --npu-values machine", kMachine | kLayout, kNotInSteps, kOption},
      {"run --backend npu --npu-timing simulated", kSimulator | kLayout, kNotInSteps, kOption},
      {"run --backend npu --npu-processor host", kHost | kHeat | kValues, "host.cores host.shared_gbps"},
  };
  return kVerbs;
}

std::vector<std::string_view> split_words(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> found;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    found.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + separator.size(), text.size()));
  }
  return found;
}

namespace {

/// Whether a row alone reads the key; nullopt: it does not decide.
std::optional<bool> decides(const DeviceVerb& row, std::string_view key, Readers readers) {
  if ((readers & kChecks) != 0) return true;
  const std::vector<std::string_view> except = split_words(row.except);
  if (std::ranges::find(except, key) != except.end()) return false;
  if ((row.readers & readers) != 0) return true;
  return std::nullopt;
}

}  // namespace

bool VerbUse::reads(std::string_view key, Readers readers) const {
  bool read = false;
  for (const std::string_view name : names_) {
    const auto row = std::ranges::find(device_verbs(), name, &DeviceVerb::name);
    assert(row != device_verbs().end());
    read = decides(*row, key, readers).value_or(read);
  }
  return read;
}

std::vector<std::string> verbs_reading(std::string_view key, Readers readers) {
  std::vector<std::string> names;
  for (const DeviceVerb& row : device_verbs()) {
    if (!decides(row, key, readers).value_or(false)) continue;
    const bool known =
        std::ranges::any_of(names, [&](const std::string& name) { return row.name.starts_with(name + " --"); });
    if (!known) names.emplace_back(row.name);
  }
  return names;
}

}  // namespace dllm::npu
