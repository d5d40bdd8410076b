#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "dllm/error.h"
#include "model/adapter.h"
#include "model/architecture.h"
#include "model/model_desc.h"
#include "model/scaled_products.h"
#include "model/source.h"
#include "model/weights.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace dllm {

constexpr std::string_view kChatTemplateKey = "tokenizer.chat_template";
/// transformers' name for the template to take if there are tools, and gguf-py's key for named templates.
constexpr std::string_view kToolTemplateKey = "tokenizer.chat_template.tool_use";

/// A loaded model: description, weights bound to the graph's declarations, tokenizer, chat template. Immutable after
/// load(), so any number of backends and threads may share it.
class Model {
 public:
  /// Errors: unknown architecture, missing or surplus tensors, shapes that contradict the metadata (tensor, both
  /// shapes), contradictory keys. A tokenizer that is absent or does not parse is no error here.
  /// `adapters`: opened too, on top of the one for drafts that the source may contain. `opened`: others, of which each
  /// tensor has a name of its own (adapters()).
  static Expected<std::shared_ptr<const Model>> load(ModelSource source, const Log& log = Log(),
                                                     std::span<const AdapterRequest> adapters = {},
                                                     std::vector<Adapter> opened = {});
  static Expected<std::shared_ptr<const Model>> load(const std::string& path, const Log& log = Log());

  const ModelDesc& desc() const { return desc_; }
  const Metadata& metadata() const { return source_.metadata; }
  const std::vector<SourceTensor>& tensors() const { return source_.tensors; }
  const Weights& weights() const { return weights_; }
  const std::vector<std::shared_ptr<const MappedFile>>& files() const { return source_.files; }
  /// These and those of the adapters.
  std::vector<std::shared_ptr<const MappedFile>> all_files() const {
    std::vector<std::shared_ptr<const MappedFile>> all = files();
    for (const Adapter& adapter : adapters_) all.insert(all.end(), adapter.files.begin(), adapter.files.end());
    return all;
  }
  /// As ModelSource::check().
  Expected<void> check() const;
  /// Null if the file has none, or none that this build reads (reported when the model was loaded).
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  /// The tokenizer, or why there is none.
  Expected<const Tokenizer*> require_tokenizer() const;
  const ChatTemplate* chat_template() const { return template_ ? &*template_ : nullptr; }
  /// The template for conversations with tools, if the file has one of its own for them, else chat_template().
  const ChatTemplate* tool_template() const { return tool_template_ ? &*tool_template_ : chat_template(); }

  /// The one for drafts that the source contains, if any, then those that were opened.
  const std::vector<Adapter>& adapters() const { return adapters_; }
  /// Whether drafts have an adapter that other passes have not.
  bool adapts_drafts() const {
    return std::ranges::any_of(adapters_, [](const Adapter& adapter) { return adapter.drafts_only; });
  }

  Graph build(StepShape shape) const {
    return with_product_scales(with_adapters(architecture_->build(desc_, shape), adapters_), scales_);
  }
  /// The same, which hands out the outputs of some layers. Error: kUnsupported, if the architecture cannot.
  Expected<void> check_hidden(std::span<const std::int32_t> layers) const;
  Graph build(StepShape shape, std::span<const std::int32_t> hidden_layers) const;
  /// Whether this is a drafter, which runs beside its target only, and its graph for the target's hidden states.
  bool is_drafter() const { return !desc_.drafter.target_layers.empty(); }
  Graph build_context(StepShape shape) const { return architecture_->build_context(desc_, shape); }

 private:
  Model() = default;
  Expected<void> load_text(const Log& log);
  Expected<void> open_adapters(std::span<const AdapterRequest> requests, std::vector<Adapter> opened);
  Expected<void> bind_weights();
  SourceTensor scaled(const SourceTensor& tensor, float scale);
  WeightView bind(const WeightDecl& decl, const std::vector<SourceTensor>& tensors);  ///< after check_tensors()

  ModelSource source_;
  std::vector<Adapter> adapters_;
  std::vector<std::string> scales_;  ///< of products, by name
  const Architecture* architecture_ = nullptr;
  ModelDesc desc_;
  Weights weights_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> owned_;  ///< tensors that had to be reordered
  std::optional<Tokenizer> tokenizer_;
  Error tokenizer_error_;  ///< meaningful if there is no tokenizer
  std::optional<ChatTemplate> template_, tool_template_;
};

}  // namespace dllm
