#include "app/npu/flags.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/cache_directory.h"
#include "base/os_process.h"
#include "base/try.h"
#include "dllm/version.h"
#include "model/model.h"
#include "npu_core/device/keys.h"
#include "npu_core/device/profile.h"

namespace dllm::app {

void DeviceFlags::add(Flags& flags) {
  flags.add({.names = {"--device"},
             .value = "NAME|FILE",
             .help = "device profile; see dllm npu devices",
             .default_text = name,
             .takes_path = true,
             .apply = into(name)});
  flags.add({.names = {"--set"},
             .value = "KEY=VALUE",
             .help = "change one key of the profile, e.g. memory.stacks=4; may be repeated",
             .apply = into(sets)});
}

Expected<std::vector<npu::Override>> DeviceFlags::changes() const {
  std::vector<npu::Override> changes;
  for (const std::string& text : sets) {
    DLLM_TRY(npu::Override change, npu::parse_override(text));
    changes.push_back(std::move(change));
  }
  return changes;
}

Expected<npu::Device> DeviceFlags::load(const npu::VerbUse& use, std::vector<npu::Override> before) const {
  DLLM_TRY(const std::vector<npu::Override> given, changes());
  before.insert(before.end(), given.begin(), given.end());
  DLLM_TRY(npu::Device device, npu::load_device(name, before));
  DLLM_CHECK_OK(npu::check_changes(given, device, use));
  return device;
}

void add_number(Flags& flags, const char* name, const char* help, std::int64_t& target, std::int64_t most) {
  flags.add({.names = {name},
             .value = "N",
             .help = help,
             .default_text = fmt::format("{}", target),
             .apply = into(target, 1, most)});
}

void RoutingFlags::add(Flags& flags) {
  flags.add({.names = {"--routing"},
             .value = "HOW",
             .help = "how rows choose experts: uniform (at random) or balanced (round-robin)",
             .default_text = "uniform",
             .choices = {"uniform", "balanced"},
             .apply = [this](const std::string& text) -> Expected<void> {
               if (text != "uniform" && text != "balanced")
                 return bad_value(fmt::format("'{}' is not a valid routing", text));
               choices.balanced = text == "balanced";
               return {};
             }});
  flags.add({.names = {"--routing-experts"},
             .value = "N",
             .help = "rows choose among the first N experts of a layer only",
             .default_text = "all",
             .apply = [this](const std::string& text) -> Expected<void> {
               std::int64_t count = 0;
               DLLM_CHECK_OK(into(count, 1, 1 << 20)(text));
               choices.lanes = static_cast<std::uint32_t>(count);
               return {};
             }});
  flags.add({.names = {"--routing-seed"},
             .value = "N",
             .help = "of the random choice",
             .default_text = "1",
             .apply = [this](const std::string& text) -> Expected<void> {
               const auto value = parse_number<std::uint64_t>(text);
               if (!value) return bad_value(fmt::format("'{}' is not a whole number", text));
               choices.seed = *value;
               return {};
             }});
}

nlohmann::ordered_json RoutingFlags::describe(const ModelDesc& desc) const {
  if (desc.experts.count == 0) return nullptr;
  nlohmann::ordered_json json = {
      {"assumed", choices.balanced ? "balanced" : "uniform"},
      {"experts", choices.lanes == 0 ? desc.experts.count
                                     : std::clamp<std::int64_t>(choices.lanes, desc.experts.used, desc.experts.count)}};
  if (!choices.balanced) json["seed"] = choices.seed;
  return json;
}

std::string RoutingFlags::text(const ModelDesc& desc) const {
  const nlohmann::ordered_json json = describe(desc);
  if (json.is_null()) return "";
  return fmt::format("assumed: each row chooses {} of {} experts {}\n", desc.experts.used,
                     json["experts"].get<std::int64_t>(),
                     choices.balanced ? "round-robin" : fmt::format("at random (seed {})", choices.seed));
}

void add_mapping_flag(Flags& flags, bool& search) {
  flags.add({.names = {"--mapping"},
             .value = "HOW",
             .help = "on-chip memories: by rule, or the mapping with the least priced time (search)",
             .default_text = "rule",
             .choices = {"rule", "search"},
             .apply = [&search](const std::string& text) -> Expected<void> {
               if (text != "rule" && text != "search")
                 return bad_value(fmt::format("'{}' is not a mapping", text), "rule or search");
               search = text == "search";
               return {};
             }});
}

std::string npu_cache_folder() {
  const std::string base = cache_directory();
  return base.empty() ? "" : base + "/npu";
}

void add_cache_flags(Flags& flags, npu::CacheKind& cache, std::int64_t& suffix) {
  flags.add({.names = {"--cache"},
             .value = "KIND",
             .help = "after a block's first step, steps run the block (dual), the block and all that follows (prefix), "
                     "or all positions (none)",
             .default_text = "dual",
             .choices = {"none", "prefix", "dual"},
             .apply = [&cache](const std::string& text) -> Expected<void> {
               const auto kind = npu::cache_from_name(text);
               if (!kind) return bad_value(fmt::format("'{}' is not a cache", text), "none, prefix or dual");
               cache = *kind;
               return {};
             }});
  flags.add({.names = {"--suffix"},
             .value = "N",
             .help = "positions that follow the block, for --cache prefix",
             .default_text = "half of the positions after the first block, in an answer of half the context",
             .apply = into(suffix, 0, 1 << 24)});
}

void WorkloadFlags::add(Flags& flags) {
  constexpr std::int64_t kMost = 1 << 24;
  add_number(flags, "--batch", "sequences", workload.batch, kMost);
  add_number(flags, "--block", "positions decoded together", workload.block, kMost);
  add_number(flags, "--context", "positions of a sequence, prompt and answer", workload.context, kMost);
  add_number(flags, "--steps", "denoising steps per block, the first of them warm", workload.steps, kMost);
  add_cache_flags(flags, workload.cache, workload.suffix);
  flags.add({.names = {"--unfused-head"},
             .help = "write the logits to memory and read them back",
             .apply = [this](const std::string& text) -> Expected<void> {
               const auto value = parse_bool(text);
               if (!value) return bad_value(fmt::format("'{}' is neither true nor false", text));
               workload.fused_head = !*value;
               return {};
             }});
}

void NpuModelFlags::add(Flags& flags) {
  flags.add({.names = {"-m", "--model"},
             .value = "FILE",
             .help = "GGUF file, for its shape",
             .takes_path = true,
             .apply = into(path)});
  flags.add({.names = {"--shape"},
             .value = "NAME|FILE",
             .help = "shape without weights: one of dllm make-model --list, or a TOML file",
             .default_text = "llada-8b",
             .takes_path = true,
             .apply = into(shape)});
}

Expected<npu::ModelShape> NpuModelFlags::load() const {
  if (!path.empty() && !shape.empty())
    return Error{ErrorCode::kUsage, "--model and --shape exclude each other", "", ""};
  if (path.empty()) return npu::load_model_shape(shape.empty() ? "llada-8b" : shape);
  DLLM_TRY(const std::shared_ptr<const Model> model, Model::load(path));
  npu::ModelShape found;
  found.desc = model->desc();
  DLLM_TRY(found.architecture, find_architecture(found.desc.architecture));
  return found;
}

nlohmann::ordered_json provenance(const std::string& command) {
  return {{"command", command}, {"version", DLLM_VERSION}, {"host", host_system().text()}};
}

}  // namespace dllm::app
