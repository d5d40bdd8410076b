#include "quant/rotation.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/try.h"
#include "format/gguf.h"
#include "model/describe.h"
#include "model/model.h"
#include "quant/rotation_choice.h"
#include "quant/rotator.h"

namespace dllm {
namespace {

constexpr const char* kPartsKey = "dllm.quantization.rotated";
constexpr const char* kNames[] = {"none", "heads", "offline", "quarot", "selective"};

/// A head that shares the embedding's table would need its gain in it.
std::vector<SourceTensor> with_own_head(const ModelSource& source, const RotationPlan& plan) {
  std::vector<SourceTensor> tensors = source.tensors;
  const SourceTensor* const embedding = source.find("token_embd.weight");
  if (!plan.residual || source.find("output.weight") != nullptr || embedding == nullptr) return tensors;
  tensors.push_back(*embedding);
  tensors.back().name = "output.weight";
  return tensors;
}

/// Whole heads, and whole inputs of ffn_down, if their orders are known.
OnlineRotation online_plan(const ModelDesc& desc, std::int64_t limit) {
  OnlineRotation online;
  for (const OnlineRotationKey& key : online_rotation_keys(desc))
    if (const std::int64_t order = Hadamard::largest_online(key.width, limit); key.width > 0 && order > 1)
      online.*key.order = order;
  return online;
}

/// "residual, heads 0 1 3, query_key 64, ffn_down 1536".
std::string parts_of(const RotationPlan& plan, const ModelDesc& desc) {
  std::string text = plan.residual ? "residual" : "", layers;
  for (std::size_t layer = 0; layer < plan.heads.size(); ++layer)
    if (plan.heads[layer]) layers += fmt::format(" {}", layer);
  if (!layers.empty()) text += fmt::format("{}heads{}", text.empty() ? "" : ", ", layers);
  for (const OnlineRotationKey& key : online_rotation_keys(desc))
    if (const std::int64_t order = plan.online.*key.order; order != 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key.key.substr(key.key.rfind('.') + 1), order);
  return text.empty() ? "nothing" : text;
}

Metadata rotated_metadata(const ModelSource& source, const ModelDesc& desc, const RotationPlan& plan,
                          Rotation rotation) {
  Metadata metadata = source.metadata;
  metadata.set(std::string(kRotationKey), MetaValue::string(kNames[static_cast<std::size_t>(rotation)]));
  metadata.set(kPartsKey, MetaValue::string(parts_of(plan, desc)));
  for (const OnlineRotationKey& key : online_rotation_keys(desc))
    if (const std::int64_t order = plan.online.*key.order; order != 0)
      metadata.set(std::string(key.key), MetaValue::u32(static_cast<std::uint32_t>(order)));
  return metadata;
}

/// "blk.3.ffn_down_hadamard.weight": a program that does not transform the matrix's input finds no ffn_down.
std::string rotated_name(const SourceTensor& tensor, const RotationRule& rule, const Rotator& rotator) {
  std::string name = tensor.name;
  if (rotator.online_order(rule) != 0) name.insert(name.rfind('.'), kRotatedSuffix);
  return name;
}

Expected<void> write_rotated(const ModelSource& source, Rotator& rotator, Metadata metadata, const std::string& path,
                             const std::function<bool()>& cancelled) {
  GgufWriter writer(std::move(metadata));
  const std::vector<SourceTensor> tensors = with_own_head(source, rotator.plan());
  std::vector<std::byte> buffer;
  for (const SourceTensor& tensor : tensors) {
    DLLM_TRY(const RotationRule* const rule, rotation_rule(tensor));
    const bool changes = rotator.changes(tensor, *rule);
    DLLM_CHECK_OK(writer.add(rotated_name(tensor, *rule, rotator), changes ? TensorType::kF32 : tensor.type,
                             tensor.shape, [&, rule, changes]() -> Expected<std::span<const std::byte>> {
                               if (cancelled && cancelled())
                                 return Error{ErrorCode::kCancelled, "the rotation was cancelled", tensor.name, ""};
                               if (!changes) return tensor_bytes(tensor, buffer);
                               DLLM_TRY(const auto values, rotator.rotate(tensor, *rule));
                               return std::as_bytes(values);
                             }));
  }
  return writer.write(path, {.replace = false, .check = [&source] { return source.check(); }});
}

}  // namespace

Expected<Rotation> rotation_named(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kNames); ++i)
    if (name == kNames[i]) return static_cast<Rotation>(i);
  return Error{ErrorCode::kUsage, fmt::format("'{}' is unknown", name), "--rotate",
               "one of none, heads, offline, quarot, selective"};
}

Expected<ModelSource> rotated_source(const ModelSource& source, const RotationOptions& options,
                                     const std::string& path) {
  if (source.metadata.contains(kRotationKey))
    return Error{ErrorCode::kUsage, "the model is rotated already", source.name, "start from the original"};
  DLLM_TRY(const auto model, Model::load(source, Log()));
  const ModelDesc& desc = model->desc();
  RotationPlan plan{options.rotation != Rotation::kHeads,
                    std::vector<bool>(static_cast<std::size_t>(desc.layers), true)};
  if (options.rotation == Rotation::kQuarot) plan.online = online_plan(desc, options.order);
  DLLM_TRY(Rotator rotator, Rotator::create(source, desc, std::move(plan), options.threads));
  if (options.rotation == Rotation::kSelective)
    DLLM_CHECK_OK(choose_rotation(source, options.types, options.threads, options.cancelled, rotator));
  DLLM_CHECK_OK(write_rotated(source, rotator, rotated_metadata(source, desc, rotator.plan(), options.rotation), path,
                              options.cancelled));
  auto opened = open_source(path);
  // Nobody else needs the name, and without one nothing is left whatever ends this process.
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  if (opened) opened->name = source.name;
  return opened;
}

}  // namespace dllm
