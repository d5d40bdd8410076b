// Found mappings in files, by shape and device.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/hash.h"
#include "base/input_file.h"
#include "base/json_reader.h"
#include "base/output_file.h"
#include "base/try.h"
#include "npu_compiler/compiler/mapper.h"
#include "npu_core/device/device.h"
#include "npu_core/device/profile.h"

namespace dllm::npu {
namespace {

using MappingJson = nlohmann::ordered_json;

/// Part of every key. Increment it when the search or the prices change.
constexpr int kMapperVersion = 1;
constexpr std::size_t kMostMappingBytes = std::size_t{1} << 20;

/// Everything that the answer depends on.
std::string question_text(const Device& device, const ModelShape& shape, const MappingQuestion& question) {
  const Graph graph = shape.architecture->build(shape.desc, {1, 1});
  MappingJson weights = MappingJson::array(), ops = MappingJson::array(), steps = MappingJson::array();
  for (const WeightDecl& decl : graph.weights) weights.push_back({decl.name, decl.shape, decl.required});
  for (const dllm::Op& any : graph.ops) {
    MappingJson one = {op_name(any), inputs(any), outputs(any)};
    if (const auto* o = std::get_if<op::Attention>(&any)) one.push_back({o->heads, o->kv_heads, o->head_dim, o->window});
    if (const auto* o = std::get_if<op::Experts>(&any)) one.push_back(static_cast<int>(o->activation));
    if (const auto* o = std::get_if<op::ScoreHead>(&any)) one.push_back(o->softcap);
    if (const auto* o = std::get_if<op::Embed>(&any)) one.push_back({static_cast<int>(o->part), o->scale});
    if (const auto* o = std::get_if<op::Scale>(&any)) one.push_back(o->factor);
    if (const auto* o = std::get_if<op::Rope>(&any)) one.push_back({o->head_dim, o->dims});
    if (const auto* o = std::get_if<op::RmsNorm>(&any)) one.push_back(o->groups);
    if (const auto* o = std::get_if<op::Glu>(&any); o != nullptr && o->activation != Activation::kSilu)
      one.push_back(static_cast<int>(o->activation));
    if (const auto* o = std::get_if<op::Route>(&any))
      one.push_back({o->used, static_cast<int>(o->score), o->groups, o->groups_used, o->capacity, o->block,
                     o->normalize, o->scale});
    ops.push_back(std::move(one));
  }
  for (const MappedStep& s : question.steps)
    steps.push_back({s.step.sequences, s.step.rows, s.step.keys, s.step.scored, s.times});
  return MappingJson{kMapperVersion, device_json(device),
                     weights,        ops,
                     steps,          {question.choices.balanced, question.choices.seed, question.choices.lanes},
                     question.logits}
      .dump();
}

std::string hash_text(const std::string& text) {
  return fmt::format("{:016x}{:016x}", Fnv1a().add(text).value(), Fnv1a(kGolden64).add(text).value());
}

MappingJson found_json(const FoundMapping& found) {
  MappingJson panels = MappingJson::array(), parts = MappingJson::array();
  for (const PanelChoice& p : found.mapping.panels) panels.push_back({p.n, p.k_tiles, p.lanes});
  for (const std::vector<RowPart>& of_step : found.parts) {
    MappingJson& list = parts.emplace_back(MappingJson::array());
    for (const RowPart& p : of_step) list.push_back({p.sequences, p.first, p.rows});
  }
  return {{"buffers",
           {found.mapping.weight_rows, found.mapping.kv_rows, found.mapping.chunk_tiles, found.mapping.expert_slots}},
          {"panels", panels},
          {"parts", parts},
          {"cycles", found.cycles}};
}

/// What found_json() wrote; none if it is anything else.
std::optional<FoundMapping> found_from(const MappingJson& json, std::size_t steps) {
  const auto numbers = [](const MappingJson& list, std::size_t count) {
    return list.is_array() && list.size() == count &&
           std::ranges::all_of(list, [](const MappingJson& n) { return n.is_number_integer(); });
  };
  if (!json.is_object() || !json.contains("buffers") || !json.contains("panels") || !json.contains("parts") ||
      !json.contains("cycles") || !numbers(json["buffers"], 4) || !json["panels"].is_array() ||
      !json["parts"].is_array() || json["parts"].size() != steps || !json["cycles"].is_number())
    return std::nullopt;
  FoundMapping found;
  const MappingJson& buffers = json["buffers"];
  found.mapping = {buffers[0], buffers[1], buffers[2], buffers[3], {}};
  for (const MappingJson& p : json["panels"]) {
    if (!numbers(p, 3)) return std::nullopt;
    found.mapping.panels.push_back({p[0], p[1], p[2]});
  }
  for (const MappingJson& of_step : json["parts"]) {
    if (!of_step.is_array()) return std::nullopt;
    std::vector<RowPart>& parts = found.parts.emplace_back();
    for (const MappingJson& p : of_step) {
      if (!numbers(p, 3)) return std::nullopt;
      parts.emplace_back(p[0].get<std::int64_t>(), p[1].get<std::int64_t>(), p[2].get<std::int64_t>());
    }
  }
  found.cycles = json["cycles"];
  return found;
}

std::optional<FoundMapping> read_mapping(const std::string& path, const std::string& key, std::size_t steps) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  const auto text = read_input(path, kMostMappingBytes);
  if (!text) return std::nullopt;
  JsonRules rules;
  rules.depth = 8;
  rules.bytes = kMostMappingBytes;
  const auto file = read_json<MappingJson>(*text, rules);
  if (!file || !file->is_object() || !file->contains("key") || !file->contains("found") || !file->contains("checksum"))
    return std::nullopt;
  if ((*file)["key"] != key || (*file)["checksum"] != hash_text((*file)["found"].dump())) return std::nullopt;
  return found_from((*file)["found"], steps);
}

}  // namespace

Expected<FoundMapping> cached_mapping(const Device& device, const ModelShape& shape, const MappingQuestion& question,
                                      const std::string& directory) {
  if (directory.empty()) return search_mapping(device, shape, question);
  const std::string key = hash_text(question_text(device, shape, question));
  const std::string path = (std::filesystem::path(directory) / ("mapping-" + key + ".json")).string();
  if (std::optional<FoundMapping> found = read_mapping(path, key, question.steps.size())) return *std::move(found);
  DLLM_TRY(FoundMapping found, search_mapping(device, shape, question));
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  const MappingJson json = found_json(found);
  // Without the file the next call searches again.
  (void)write_file(path, MappingJson{{"key", key}, {"found", json}, {"checksum", hash_text(json.dump())}}.dump());
  return found;
}

Expected<BlockParts> search_block(const Device& device, const ModelShape& shape, const Workload& workload,
                                  const std::string& directory) {
  const StepSize warm = warm_step(workload);
  DLLM_TRY(const MemoryNeed need, memory_need(device, shape, warm.keys, true));
  DLLM_CHECK_OK(check_caches(need, warm.sequences));
  MappingQuestion question{.choices = workload.choices, .logits = !workload.fused_head};
  question.steps = {{warm, 1.0}, {refine_step(workload), static_cast<double>(workload.steps - 1)}};
  DLLM_TRY(FoundMapping found, cached_mapping(device, shape, question, directory));
  return BlockParts{std::move(found.parts[0]), std::move(found.parts[1]), std::move(found.mapping)};
}

}  // namespace dllm::npu
