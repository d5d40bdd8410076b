#include "model/drafter_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/try.h"
#include "model/architecture.h"
#include "numerics/tensor_type.h"

namespace dllm {
namespace {

std::string name_of(const ModelDesc& desc) { return desc.name.empty() ? desc.architecture : desc.name; }

Error another_target(const std::string& drafter, const ModelDesc& target, std::string what) {
  return {ErrorCode::kMismatch,
          fmt::format("'{}' drafts for another model than '{}': {}", drafter, name_of(target), std::move(what)),
          "--draft-model", "give the drafter that was trained for this model"};
}

void set_u32(ModelSource& source, std::string key, std::int64_t value) {
  source.metadata.set(std::move(key), MetaValue::u32(static_cast<std::uint32_t>(value)));
}

/// Keys for what only tensors say.
Expected<void> describe_tensors(ModelSource& drafter) {
  if (const SourceTensor* const markov = drafter.find("markov_w1.weight"))
    set_u32(drafter, "dflash.markov_rank", markov->shape.front());
  if (drafter.find("conf_proj.weight") != nullptr)
    drafter.metadata.set("dflash.confidence_head", MetaValue::boolean(true));
  const SourceTensor* const map = drafter.find("d2t");
  if (map == nullptr) return {};
  if (drafter.find("output.weight") == nullptr)
    return Error{ErrorCode::kInvalidFile, "a draft vocabulary without a head of its own", drafter.name + ", d2t", ""};
  set_u32(drafter, "dflash.draft_vocab_size", element_count(map->shape));
  return {};
}

/// A tensor of the target under a name of the drafter's.
Expected<void> borrow(const Model& target, std::string_view from, std::string_view as, ModelSource& drafter) {
  if (drafter.find(as) != nullptr) return {};
  const auto found = std::ranges::find(target.tensors(), from, &SourceTensor::name);
  if (found == target.tensors().end())
    return Error{ErrorCode::kInvalidFile, "neither the drafter nor its target has the tensor", std::string(as), ""};
  SourceTensor tensor = *found;
  tensor.name = as;
  drafter.tensors.push_back(std::move(tensor));
  return {};
}

}  // namespace

bool is_drafter(const ModelSource& source) {
  const auto name = source.metadata.string("general.architecture");
  if (!name || !*name) return false;
  const auto architecture = find_architecture(**name);
  return architecture && (*architecture)->build_context != nullptr;
}

Expected<void> complete_drafter(const Model& target, ModelSource& drafter) {
  const ModelDesc& desc = target.desc();
  DLLM_TRY(const auto own_name, drafter.metadata.string("general.name"));
  const std::string name = own_name.value_or(drafter.name);
  DLLM_TRY(const auto width, drafter.metadata.integer("dflash.embedding_length"));
  if (width && *width != desc.width)
    return another_target(name, desc,
                          fmt::format("its hidden states have {} numbers, the model's {}", *width, desc.width));
  if (const SourceTensor* const table = drafter.find("token_embd.weight");
      table != nullptr && table->shape.size() == 2 && table->shape[1] != desc.vocab)
    return another_target(name, desc, fmt::format("it has {} tokens, the model {}", table->shape[1], desc.vocab));
  DLLM_CHECK_OK(describe_tensors(drafter));
  const bool tied = std::ranges::find(target.tensors(), "output.weight", &SourceTensor::name) == target.tensors().end();
  DLLM_CHECK_OK(borrow(target, "token_embd.weight", "token_embd.weight", drafter));
  DLLM_CHECK_OK(borrow(target, tied ? "token_embd.weight" : "output.weight", "output.weight", drafter));
  set_u32(drafter, "dflash.vocab_size", desc.vocab);
  return {};
}

Expected<void> check_drafter(const Model& target, const Model& drafter) {
  const ModelDesc &desc = target.desc(), &own = drafter.desc();
  const std::string name = name_of(own);
  if (!desc.autoregressive() && !desc.has_mode(DecodingMode::kAutoregressive))
    return Error{ErrorCode::kUsage, fmt::format("'{}' does not decode one token after the other", name_of(desc)),
                 "--draft-model", "drafters draft for autoregressive models; leave the option out"};
  if (own.drafter.target_layer_count > 0 && own.drafter.target_layer_count != desc.layers)
    return another_target(
        name, desc, fmt::format("its target has {} layers, the model {}", own.drafter.target_layer_count, desc.layers));
  // The last layer's output is ambiguous: programs disagree whether it is meant in front of the last norm or after it.
  if (own.drafter.target_layers.back() >= desc.layers - 1)
    return another_target(name, desc,
                          fmt::format("it reads the output of layer {}, and the model has {}",
                                      own.drafter.target_layers.back(), desc.layers));
  if (!own.mask)
    return Error{ErrorCode::kInvalidFile, fmt::format("'{}' names no mask token", name), "tokenizer.ggml.mask_token_id",
                 "convert the drafter again"};
  for (const float id : drafter_values(drafter, "d2t"))
    if (!(id >= 0) || !(id < static_cast<float>(desc.vocab)))
      return Error{ErrorCode::kInvalidFile,
                   fmt::format("'{}' names token {}, and the model has {}", name, id, desc.vocab), "d2t",
                   "convert the drafter again"};
  if (target.tokenizer() != nullptr && drafter.tokenizer() != nullptr &&
      target.tokenizer()->spec().tokens != drafter.tokenizer()->spec().tokens)
    return another_target(name, desc, "its tokens are other texts");
  return target.check_hidden(own.drafter.target_layers);
}

std::vector<float> drafter_values(const Model& drafter, std::string_view name) {
  std::vector<float> values;
  for (const SourceTensor& tensor : drafter.tensors()) {
    if (tensor.name != name) continue;
    const std::int64_t count = element_count(tensor.shape);
    values.resize(static_cast<std::size_t>(count));
    codec(tensor.type).dequantize(tensor.data.data(), values.data(), count);
  }
  return values;
}

}  // namespace dllm
