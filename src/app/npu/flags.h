#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "app/cli/flags.h"
#include "npu_compiler/workload/model_shape.h"
#include "npu_compiler/workload/workload.h"
#include "npu_core/device/override.h"
#include "npu_core/device/readers.h"

namespace dllm::npu {
struct Device;
}

namespace dllm::app {

/// --device and --set, shared by all `dllm npu` commands that need a device.
struct DeviceFlags {
  std::string name = "dart-2048";
  std::vector<std::string> sets;

  void add(Flags& flags);
  /// The changes of --set. Errors: kUsage.
  Expected<std::vector<npu::Override>> changes() const;
  /// Errors: those of load_device() and check_changes(): a key of --set that the verb
  /// does not read. `before`: changes of the verb's own, which --set may replace.
  Expected<npu::Device> load(const npu::VerbUse& use, std::vector<npu::Override> before = {}) const;
};

/// --routing, --routing-experts, --routing-seed: how rows choose experts in runs without data.
struct RoutingFlags {
  npu::ChoiceAssumption choices;

  void add(Flags& flags);
  /// Reported with every figure that depends on it; null for models without experts.
  nlohmann::ordered_json describe(const ModelDesc& desc) const;
  std::string text(const ModelDesc& desc) const;
};

/// --mapping: how matrices, keys and rows use the on-chip memories.
void add_mapping_flag(Flags& flags, bool& search);
/// Where found mappings and reports of simulated time are kept; "": nowhere.
std::string npu_cache_folder();

/// --cache and --suffix: which positions a step recomputes.
void add_cache_flags(Flags& flags, npu::CacheKind& cache, std::int64_t& suffix);

/// --batch, --block, --context, --steps, --cache, --suffix, --unfused-head.
struct WorkloadFlags {
  npu::Workload workload;

  void add(Flags& flags);
};

/// A model's graph builder: --shape NAME|FILE, or -m FILE.gguf.
struct NpuModelFlags {
  std::string path, shape;

  void add(Flags& flags);
  /// Without either flag: the shape of LLaDA-8B.
  Expected<npu::ModelShape> load() const;
};

inline Apply into(std::int64_t& target, std::int64_t minimum, std::int64_t maximum) {
  return [&target, minimum, maximum](const std::string& text) -> Expected<void> {
    const auto value = parse_number<std::int64_t>(text);
    if (!value) return bad_value(fmt::format("'{}' is not a whole number", text));
    if (*value < minimum || *value > maximum)
      return bad_value(fmt::format("{} is outside {} .. {}", *value, minimum, maximum));
    target = *value;
    return {};
  };
}

/// `name N` from 1 to `most`; the target's value is the default.
void add_number(Flags& flags, const char* name, const char* help, std::int64_t& target, std::int64_t most);

/// The command, the version and the machine, which are reported with every figure.
nlohmann::ordered_json provenance(const std::string& command);

}  // namespace dllm::app
